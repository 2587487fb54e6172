"""Distributions of lengths: their means, quantiles and maxima."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.compiler.target import Lengths
from flowrl.errors import RunFileError

weights = st.floats(0.1, 10)
histograms = st.lists(
    st.tuples(st.integers(1, 50), weights), min_size=1, max_size=4, unique_by=lambda pair: pair[0]
)
cut = st.builds(
    lambda mean, over, spread: {"mean": mean, "max": mean * over, "std": mean * spread},
    st.floats(10, 2000),
    st.floats(1.05, 20),
    st.floats(0.05, 2),
)
specs = histograms | cut | st.floats(1, 5000)


def test_a_number_is_one_length():
    lengths = Lengths.of(600)

    assert (lengths.mean, lengths.maximum) == (600, 600)


def test_lengths_of_a_histogram_are_exact():
    lengths = Lengths.of([(30, 1), (10, 2), (20, 1)])

    assert lengths.shares == ((10, 0.5), (20, 0.25), (30, 0.25))
    assert lengths.mean == 17.5
    assert lengths.mean_square == 375
    assert [lengths.quantile(q) for q in (0, 0.5, 0.51, 0.75, 1)] == [10, 10, 20, 20, 30]


@given(cut)
def test_a_cut_lognormal_has_the_mean_and_the_maximum_that_it_was_given(spec):
    lengths = Lengths.of(spec)

    assert lengths.mean == pytest.approx(spec["mean"], rel=1e-6)
    assert lengths.maximum <= spec["max"] * (1 + 1e-9)
    assert sum(share for _, share in lengths.shares) == pytest.approx(1)
    assert list(lengths.shares) == sorted(lengths.shares)


def test_without_a_spread_one_in_a_hundred_reaches_the_maximum():
    lengths = Lengths.of({"mean": 600, "max": 4096})

    assert lengths.quantile(0.985) < 4096
    assert lengths.quantile(0.996) == pytest.approx(4096)


def test_a_spread_is_a_standard_deviation_or_a_high_quantile():
    by_std = Lengths.of({"mean": 600, "std": 300, "max": 1e6})
    by_p99 = Lengths.of({"mean": 600, "p99": 2000, "max": 1e6})

    assert (by_std.mean_square - 600**2) ** 0.5 == pytest.approx(300, rel=0.01)
    assert by_p99.quantile(0.99) == pytest.approx(2000, rel=0.05)


@given(specs)
def test_spans_survive_as_many_tokens_as_the_mean(spec):
    lengths = Lengths.of(spec)
    steps = list(lengths.survival())

    assert sum((end - start) * longer for start, end, longer in steps) == pytest.approx(
        lengths.mean
    )
    assert [longer for *_, longer in steps] == sorted((s for *_, s in steps), reverse=True)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"mean": 600, "max": 500},
            snapshot("""\
lengths need a `mean` above 0, at most `max`, and perhaps `std`, or `p99` between; got {'mean': 600, 'max': 500}
  cluster.lengths
help: write {mean = 600, max = 1024}, or add p99 = 1000 or std = 250\
"""),
        ),
        (
            {"mean": 600, "p90": 900},
            snapshot("""\
lengths need a `mean` above 0, at most `max`, and perhaps `std`, or `p99` between; got {'mean': 600, 'p90': 900}
  cluster.lengths
help: write {mean = 600, max = 1024}, or add p99 = 1000 or std = 250\
"""),
        ),
        (
            [(10, 0)],
            snapshot("""\
lengths need counts and weights that are not negative, one above 0; got [(10, 0)]
  cluster.lengths
help: write a number, {mean = 600, max = 1024}, or [[tokens, weight], ...]\
"""),
        ),
        (
            -1,
            snapshot("""\
lengths need counts and weights that are not negative, one above 0; got -1
  cluster.lengths
help: write a number, {mean = 600, max = 1024}, or [[tokens, weight], ...]\
"""),
        ),
    ],
)
def test_contradictions_are_refused(spec, message):
    with pytest.raises(RunFileError) as error:
        Lengths.of(spec, where="  cluster.lengths")

    assert str(error.value) == message
