import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.ir.types import Axis
from flowrl.runtime.rows import selection
from flowrl.runtime.rows.rows import Row

AXES = (Axis("prompt", 1), Axis("sample", 1), Axis("token", 1))
trees = st.lists(st.lists(st.lists(st.integers(0, 99), max_size=3), max_size=3), max_size=4)


def packed(tree):
    """Pack prompts of samples of tokens."""
    samples = [sample for prompt in tree for sample in prompt]
    counts = torch.tensor([len(prompt) for prompt in tree], dtype=torch.int64)
    return Ragged(*_flat(samples, counts))


def _flat(samples, counts):
    rows = Ragged.of_rows(samples, torch.int64)
    return rows.values, (counts, rows.lengths[0])


def unpacked(value):
    """Return prompts of samples of tokens."""
    samples = iter([row.tolist() for row in value.rows()])
    return [[next(samples) for _ in range(count)] for count in value.lengths[0].tolist()]


def rows(*ids):
    return tuple(Row(i, f"data.jsonl:{i + 1}", "") for i in ids)


@given(trees)
def test_select_of_samples_keeps_what_a_comprehension_keeps(tree):
    good = [[sum(sample) % 2 == 0 for sample in prompt] for prompt in tree]
    lengths = packed(tree).lengths
    condition = Ragged(torch.tensor([x for g in good for x in g], dtype=torch.bool), lengths[:1])

    chosen = selection.select(condition, AXES[:2])

    kept = [[s for s in prompt if sum(s) % 2 == 0] for prompt in tree]
    assert unpacked(selection.take(chosen, packed(tree), AXES)) == [p for p in kept if p]
    numbers = tuple(range(len(tree)))
    assert selection.take(chosen, numbers, AXES[:1]) == tuple(i for i in numbers if kept[i])


@given(trees)
def test_select_of_prompts_keeps_their_samples(tree):
    condition = Ragged(torch.tensor([len(prompt) > 1 for prompt in tree], dtype=torch.bool))

    chosen = selection.select(condition, AXES[:1])

    assert unpacked(selection.take(chosen, packed(tree), AXES)) == [p for p in tree if len(p) > 1]


@given(trees, trees)
def test_concat_joins_and_first_divides(left, right):
    joined = selection.concat([packed(left), packed(right)])

    assert unpacked(joined) == left + right
    assert unpacked(selection.first(joined, AXES, 0, len(left))) == left
    assert unpacked(selection.first(joined, AXES, len(left), len(left + right))) == right


def test_align_brings_rows_into_the_order_of_others():
    value = Ragged(torch.tensor([0.0, 1.0, 2.0]))

    got = selection.align(value, rows(5, 6, 7), rows(7, 5), AXES[:1])

    assert got.values.tolist() == [2, 0]


def test_align_pairs_a_row_that_comes_twice_in_order():
    value = Ragged(torch.tensor([0.0, 1.0, 2.0]))

    got = selection.align(value, rows(5, 6, 5), rows(5, 5, 6), AXES[:1])

    assert got.values.tolist() == [0, 2, 1]


def test_align_takes_samples_along():
    got = selection.align(packed([[[1], [2, 3]], [[4]]]), rows(0, 1), rows(1, 0), AXES)

    assert unpacked(got) == [[[4]], [[1], [2, 3]]]


def test_align_names_the_row_that_is_missing():
    with pytest.raises(EngineError) as error:
        selection.align(Ragged(torch.zeros(1)), rows(1), rows(1, 2), AXES[:1])

    assert str(error.value) == snapshot("""\
the value has no entry for row 2 (data.jsonl:3), which `to` has
help: both must be made of the same prompts; a row whose reward failed is gone where `on_reward_error` drops its group\
""")
