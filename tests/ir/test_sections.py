from hypothesis import given
from hypothesis import strategies as st

from flowrl.ir.sections import Section, joined_heads, section_spans


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 8), st.booleans())
def test_ranks_have_whole_units_and_all_of_them(units, unit, ranks, shared):
    section = Section(units * unit, unit, shared)

    if section.fits(ranks):
        spans = [section.span(index, ranks) for index in range(ranks)]
        held = [element for span in spans for element in range(*span)]
        assert set(held) == set(range(section.size))
        assert len(held) == max(units, ranks) * unit
        assert all(start % unit == 0 == stop % unit for start, stop in spans)
    else:
        assert units % ranks
        assert not shared or ranks % units


def test_each_of_joined_matrices_is_divided_by_itself():
    parts = joined_heads(size=16, heads=4, kv_heads=2)  # heads of 2

    assert [section_spans(parts, index, 2) for index in range(2)] == [
        ((0, 4), (8, 10), (12, 14)),
        ((4, 8), (10, 12), (14, 16)),
    ]
    assert section_spans(parts, 1, 4) == ((2, 4), (8, 10), (12, 14))


def test_what_ranks_do_not_divide_is_told_in_heads_or_columns():
    assert Section(12, 4).misfit(2, "q_proj") == "`tp` 2 doesn't divide the 3 heads of `q_proj`"
    assert Section(21).misfit(2, "up_proj") == "`tp` 2 doesn't divide the 21 of `up_proj`"
