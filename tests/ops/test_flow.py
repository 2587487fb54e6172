"""Scans over minibatches and conditions."""

import pytest

from flowrl import ops
from flowrl.errors import EngineError
from tests.ops.evaluated import evaluate


def summed(sequences, **options):
    """Return the sum of rewards over a scan, and the sum in each turn."""

    def program(x, r):
        batches = ops.minibatches(ops.record(r, reward=x[2]), sequences=sequences, **options)
        body = lambda total, mb: (total + mb.reward.sum(), {"sum": mb.reward.sum()})
        return ops.scan(body, x[0], batches)

    total, stats = evaluate(program)
    return total, stats["sum"]


def test_a_scan_sees_each_row_once_an_epoch():
    total, turns = summed(1, epochs=2)

    assert total == 0.5 + 2 * 9.0
    assert sorted(turns) == [4.0, 4.0, 5.0, 5.0]


def test_minibatches_by_sequence_part_groups():
    total, turns = summed(1, by="sequence")

    assert (total, sorted(turns)) == (9.5, [1.0, 3.0, 5.0])


def test_minibatches_of_near_equal_tokens_and_microbatches_are_scanned():
    """Samples of 3, 2 and 4 tokens with their context of 1."""

    def turns(divide):
        def program(x, r):
            body = lambda total, mb: (total, {"tokens": ops.count(mb.mask | ~mb.mask)})
            return ops.scan(body, x[0], divide(ops.record(r, extra=x[3])))[1]["tokens"]

        return sorted(evaluate(program))

    halves = lambda r: ops.minibatches(r, sequences=2, by="sequence", balance="tokens")
    assert turns(halves) == [3.0, 3.0]
    assert turns(lambda r: ops.microbatches(r, max_tokens=5)) == [3.0, 3.0]
    assert turns(lambda r: ops.microbatches(r, max_tokens=6, by="sequence")) == [2.0, 4.0]
    assert turns(lambda r: ops.microbatches(r, max_tokens=9)) == [6.0]


def test_outer_numbers_are_known_in_a_body():
    def program(x, r):
        outer = x[2].mean()
        body = lambda total, mb: (total + outer, {})
        return ops.scan(body, x[0], ops.minibatches(r, sequences=1))[0]

    assert evaluate(program) == 6.5


def test_a_carry_may_be_a_record_of_numbers():
    def program(x, r):
        body = lambda c, mb: ({"n": c["n"] + 1.0, "last": mb.mask.float().sum(mask=mb.mask)}, {})
        start = {"n": 0.0 * x[0], "last": x[0]}
        return ops.scan(body, start, ops.minibatches(r, sequences=8))[0]

    assert evaluate(program) == {"n": 1.0, "last": 5.0}


@pytest.mark.parametrize(("limit", "expected"), [(0.0, [2.0, 4.0, 6.0]), (9.0, [0.0, 2.0, 4.0])])
def test_a_condition_runs_one_side_with_what_either_captures(limit, expected):
    def program(x, r):
        more, less = x[0] * 2.0, x[0] * -2.0
        return ops.cond(x[2].mean() > limit, lambda y: y + more, lambda y: y + less, x[2])

    assert evaluate(program) == expected


def test_a_side_may_return_an_outer_value_as_it_is():
    program = lambda x, r: ops.cond(x[0] > 0.0, lambda: x[1], lambda: -x[1])

    assert evaluate(program) == [1.0, -2.0]


def test_conditions_nest():
    def program(x, r):
        inner = lambda: ops.cond(x[0] > 9.0, lambda: x[1], lambda: x[1] * x[0])
        return ops.cond(x[0] > 0.0, inner, lambda: -x[1])

    assert evaluate(program) == [0.5, -1.0]


def drawn(groups, **options):
    """Return the rows of batch and surplus of one draw of both prompts, and how many it took."""

    def program(x, r):
        draw = lambda prompts: (prompts, prompts.context.float().sum(over="context"))
        keep = lambda made: made[1] > 0.0
        batch, surplus, count = ops.sample_until(
            draw, keep, r.prompts, groups=groups, rounds=1, **options
        )
        return batch[0].rows, surplus[0].rows, count

    return evaluate(program)


def test_the_first_groups_kept_are_the_batch_and_the_rest_surplus():
    assert drawn(1) == ([0], [1], 2)


def test_too_few_groups_stop_the_run():
    with pytest.raises(EngineError, match="3 groups wanted, 2 of 2 prompts kept"):
        drawn(3)


def test_too_few_groups_may_be_accepted():
    assert drawn(3, shortfall="accept") == ([0, 1], [], 2)


def test_numbers_are_carried_and_handed_to_conditions():
    def program(x, r):
        body = lambda total, mb: (total + mb.mask.float().sum(mask=mb.mask), {})
        total, _ = ops.scan(body, 1.0, ops.minibatches(r, sequences=8))
        return ops.cond(total > 5.0, lambda y: y, lambda y: -y, 2.0), total

    assert evaluate(program) == (2.0, 6.0)
