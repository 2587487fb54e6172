"""Rows chosen, put side by side and joined."""

from flowrl import ops
from tests.ops.evaluated import evaluate


def test_selecting_samples_drops_the_prompts_that_keep_none():
    got = evaluate(lambda x, r: ops.select([x[1], x[2], x[3]], where=x[2] < 4.0))

    assert got == [[1.0], [1.0, 3.0], [1.0, 2.0, 3.0]]


def test_selecting_prompts_keeps_their_groups_whole():
    got = evaluate(lambda x, r: ops.select([x[2], r.prompts.rows, r.tokens], where=x[1] < 0.0))

    assert got == [[5.0], [1], [3, 4, 5]]


def test_selecting_nothing_leaves_nothing():
    got = evaluate(lambda x, r: ops.select([x[1], x[3]], where=x[1] > 9.0))

    assert got == [[], []]


def test_fields_of_a_record_stand_beside_those_of_its_base():
    got = evaluate(lambda x, r: (ops.record(r, reward=x[2]).reward, ops.record(r, a=x[1]).tokens))

    assert got == ([1.0, 3.0, 5.0], [0, 1, 2, 3, 4, 5])


def test_selected_rows_align_with_a_later_selection_of_them():
    def program(x, r):
        best = ops.select(x[2].max(over="sample"), where=x[1] > -9.0)
        kept = ops.select(r, where=x[1] < 0.0)
        return ops.align(best, to=kept)

    assert evaluate(program) == [5.0]


def test_a_selection_of_a_selection_aligns():
    def program(x, r):
        kept, scores = ops.select((r, x[2]), where=x[2] > 1.0)
        again, scores = ops.select((kept, scores), where=scores > 4.0)
        return ops.align(x[1], to=again), scores

    assert evaluate(program) == ([-2.0], [5.0])


def test_a_selection_inside_a_scan_has_its_own_axes():
    def body(total, mb):
        kept = ops.select(mb.reward, where=mb.reward > 2.0)
        return total + kept.sum(), {"kept": kept.mean()}

    def program(x, r):
        batches = ops.minibatches(ops.record(r, reward=x[2]), sequences=8)
        return ops.scan(body, x[0], batches)

    total, stats = evaluate(program)
    assert (total, stats) == (8.5, {"kept": [4.0]})
