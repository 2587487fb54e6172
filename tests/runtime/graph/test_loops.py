from itertools import chain

import pytest
import torch
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.runtime.graph.interpret import Interpreter
from flowrl.runtime.host import Host, Scores
from flowrl.runtime.rows.rows import Row
from tests.runtime import steps

FIVE = [3, 1, 2, 4, 2]
"""Samples of each of five prompts; every sample has its own number for its one token."""


def numbered():
    """Return the values of a program's `pairs`: prompts 0 to 4, samples 0 to 11."""
    samples = torch.tensor(FIVE)
    count = int(samples.sum())
    levels = (samples, torch.ones(count, dtype=torch.int64))
    return {
        "pairs.context": Ragged.of_rows([[i] for i in range(5)], torch.int64),
        "pairs.rows": tuple(Row(i, f"rows:{i}", "") for i in range(5)),
        "pairs.tokens": Ragged(torch.arange(count), levels),
        "pairs.mask": Ragged(torch.ones(count, dtype=torch.bool), levels),
    }


def evaluated(program, given, *, host=None, step=0, lowered=True, **hyperparameters):
    """Return the metrics of a program on values of its inputs; nodes that watch see the values."""
    traced = fl.trace(program, **hyperparameters)
    graph = traced.lower().graph if lowered else traced.graph
    host = host or Host()
    host.begin(step, host.cursors)
    outputs = Interpreter(host).run(graph, [given.get(name) for name, _ in graph.inputs])
    return {n.removeprefix("metrics."): x for (n, _), x in zip(graph.outputs, outputs, strict=True)}


SEEN = []


@fl.op("i32[prompt, sample, token] -> f32[]", per="batch")
def see(tokens):
    """Note the elements that come by; return their number."""
    SEEN.append(tokens.tolist())
    return torch.tensor(float(len(tokens)))


@fl.program
def turns(pairs: fl.Pairs, *, sequences=4, epochs=1, by="group"):
    def body(total, mb):
        size = see(mb.tokens)
        return total * 2 + size, {"size": size, "size_max": size, "total": total}

    parts = ops.minibatches(pairs, sequences=sequences, epochs=epochs, by=by)
    total, stats = ops.scan(body, pairs.mask.float().sum(mask=pairs.mask) * 0, parts)
    return stats | {"last": total}


def minibatches(step=0, seed=0, **options):
    """Return the samples in each minibatch, in order, and the metrics."""
    SEEN.clear()
    metrics = evaluated(turns, numbered(), host=Host(seed=seed), step=step, **options)
    return list(SEEN), {name: float(x) for name, x in metrics.items()}


def groups():
    starts = torch.tensor(FIVE).cumsum(0) - torch.tensor(FIVE)
    return [list(range(s, s + n)) for s, n in zip(starts.tolist(), FIVE, strict=True)]


def test_minibatches_hold_each_row_once_an_epoch_in_another_order_each_time():
    for by in ("group", "sequence"):
        parts, _ = minibatches(epochs=3, by=by)

        epochs = [parts[i : i + 3] for i in (0, 3, 6)]
        assert [sorted(chain(*epoch)) for epoch in epochs] == [list(range(12))] * 3
        assert len({str(epoch) for epoch in epochs}) == 3


def test_minibatches_by_group_keep_groups_whole():
    parts, _ = minibatches()

    for group in groups():
        assert sum(set(group) <= set(part) for part in parts) == 1


@pytest.mark.parametrize(
    ("by", "sequences", "sizes"),
    [
        ("sequence", 12, [12]),
        ("sequence", 5, [4, 4, 4]),
        ("sequence", 7, [6, 6]),
        ("sequence", 1, [1] * 12),
        ("sequence", 100, [12]),
    ],
)
def test_minibatches_by_sequence_are_even(by, sequences, sizes):
    parts, _ = minibatches(by=by, sequences=sequences)

    assert [len(part) for part in parts] == sizes


def test_minibatches_by_group_are_even_in_groups():
    starts = {group[0] for group in groups()}

    parts, _ = minibatches(sequences=5)  # 12 sequences in ceil(12 / 5) minibatches of 5 groups

    assert sorted(len(starts & set(part)) for part in parts) == [1, 2, 2]


def test_the_order_of_minibatches_follows_from_run_seed_and_step():
    first = minibatches(step=0, seed=0)[0]

    assert minibatches(step=0, seed=0)[0] == first
    assert minibatches(step=1, seed=0)[0] != first
    assert minibatches(step=0, seed=1)[0] != first


def test_scan_hands_the_carry_on_and_stacks_statistics_by_turn():
    parts, metrics = minibatches()

    total, totals = 0, []
    for part in parts:
        totals.append(total)
        total = 2 * total + len(part)
    assert metrics == {
        "last": total,
        "size": 4.0,
        "size_max": max(map(len, parts)),
        "total": pytest.approx(sum(totals) / 3),
    }


def test_scan_over_no_rows_returns_the_carry():
    empty = {
        "pairs.context": Ragged.of_rows([], torch.int64),
        "pairs.rows": (),
        "pairs.tokens": Ragged(
            torch.zeros(0, dtype=torch.int64), (torch.zeros(0, dtype=torch.int64),) * 2
        ),
        "pairs.mask": Ragged(
            torch.zeros(0, dtype=torch.bool), (torch.zeros(0, dtype=torch.int64),) * 2
        ),
    }

    metrics = evaluated(turns, empty)

    assert {name: float(x) for name, x in metrics.items()} == {
        "last": 0,
        "size": 0,
        "size_max": 0,
        "total": 0,
    }


@fl.program
def redrawn(policy: fl.Model, prompts: fl.Prompts):
    rollouts, rewards = ops.score("first", ops.generate(policy, prompts))

    def body(total, mb):
        _, more = ops.score("again", ops.generate(policy, mb.prompts))
        return total + more.mean(), {}

    parts = ops.minibatches(rollouts, sequences=2, epochs=3)
    total, _ = ops.scan(body, rewards.mean(), parts)
    return {"total": total}


def test_each_turn_of_a_scan_samples_anew(model_folder, tokenizer):
    drawn = []

    def score(names, rows, texts, samples, step, given):
        drawn.append(sorted((row.id, text) for row, text in zip(rows, texts, strict=True)))
        return Scores([[0.0] * len(rows)], {})

    traced = fl.trace(redrawn)
    roles = steps.roles(traced, model_folder)
    executor = steps.executor(traced, roles, tokenizer, rows=2, score=score)
    steps.run(executor, {"prompts": steps.Texts(tokenizer)})

    _, *turns = drawn
    assert [[row for row, _ in turn] for turn in turns] == [[0, 1]] * 3
    assert len({str(turn) for turn in turns}) == 3


@fl.program
def gated(policy: fl.Model, prompts: fl.Prompts, *, limit=0.0):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))

    def train(policy):
        policy, _ = ops.update(
            policy, lambda new: ops.token_mean(-new.logprobs, rollouts.mask), rollouts
        )
        return policy, rewards.mean()

    policy, side = ops.cond(
        rewards.mean() > limit, train, lambda policy: (policy, 0 * limit - 1), policy
    )
    return policy, {"side": side}


@pytest.mark.parametrize(("limit", "trained"), [(-1.0, True), (99.0, False)])
def test_cond_runs_one_side_with_its_models(model_folder, tokenizer, limit, trained):
    traced = fl.trace(gated, limit=limit)
    executor = steps.executor(traced, steps.roles(traced, model_folder), tokenizer)
    before = steps.weights(executor.first())

    carry, metrics = steps.run(executor, {"prompts": steps.Texts(tokenizer)})

    after = steps.weights(carry)
    assert any(not torch.equal(after[key], before[key]) for key in before) == trained
    assert (metrics["side"] == -1) != trained
    assert carry["policy"].version == trained


@fl.program
def dynamic(policy: fl.Model, prompts: fl.Prompts, *, groups=3, rounds=3, shortfall="error"):
    def draw(prompts):
        return ops.score("reward", ops.generate(policy, prompts, n=2))

    keep = lambda drawn: drawn[1].max(over="sample") > 0
    (rollouts, rewards), (_, spare), drawn = ops.sample_until(
        draw, keep, prompts, groups=groups, rounds=rounds, shortfall=shortfall
    )
    sizes = {"kept": ops.count(rewards == rewards), "spare": ops.count(spare == spare)}
    loss = lambda new: ops.token_mean(-new.logprobs, rollouts.mask)
    policy, _ = ops.update(policy, loss, rollouts)
    return policy, sizes | {"drawn": drawn.float(), "reward": rewards.mean(), "extra": spare.mean()}


@pytest.fixture(scope="module")
def sampled(model_folder, tokenizer):
    """Run one step of `dynamic` with these rows good; return metrics, the cursor and rows scored."""

    def sampled(good, **options):
        traced, scored = fl.trace(dynamic, **options), []

        def score(names, rows, texts, samples, step, given):
            scored.append([(row.id, text) for row, text in zip(rows, texts, strict=True)])
            values = [1.0 + row.id if row.id in good else 0.0 for row in rows]
            return Scores([values], {})

        data = steps.Texts(tokenizer)
        executor = steps.executor(
            traced, steps.roles(traced, model_folder), tokenizer, rows=2, score=score
        )
        _, metrics = steps.run(executor, {"prompts": data})
        return metrics, data.position, scored

    return sampled


def test_sample_until_draws_rounds_of_fresh_rows_until_enough_are_kept(sampled):
    metrics, position, scored = sampled({1, 2, 3, 5})

    assert [[row for row, _ in part[::2]] for part in scored] == [[0, 1], [2, 3]]
    assert metrics["drawn"] == position == 4
    assert metrics["reward"] == (2 + 3 + 4) / 3


def test_sample_until_hands_out_the_surplus_of_the_last_round(sampled):
    metrics, position, _ = sampled({1, 2, 3}, groups=2)

    assert (metrics["kept"], metrics["spare"], metrics["extra"]) == (4, 2, 4.0)
    assert metrics["drawn"] == position == 4


def test_sample_until_keeps_as_many_as_a_round_has_prompts_if_none_are_asked_for(sampled):
    metrics, position, _ = sampled({1, 2, 3}, groups=None)

    assert (metrics["kept"], metrics["spare"]) == (4, 2)  # samples, two a prompt
    assert metrics["drawn"] == position == 4


def test_sample_until_samples_a_row_anew_in_each_round(model_folder, tokenizer, sampled):
    _, _, scored = sampled(
        {99}, shortfall="accept", rounds=5
    )  # 8 texts, 2 a round: row 0 comes again

    first, again = scored[0][:2], scored[4][:2]
    assert [row for row, _ in first] == [row for row, _ in again] == [0, 0]
    assert first != again


def test_sample_until_stops_the_run_if_groups_are_missing(sampled):
    with pytest.raises(EngineError) as error:
        sampled({1}, rounds=2)

    assert "(rollouts, rewards), (_, spare), drawn = ops.sample_until(" in error.value.where
    assert [error.value.problem, error.value.hint] == snapshot(
        [
            "sample_until: 3 groups wanted, 1 of 4 prompts kept in 2 rounds; all samples have the same `reward` in 100% of the groups: 0 (the lowest) in 75%, 2 (the highest) in 25%",
            "if all are right the task is too easy for the policy, if all are wrong too hard, or the reward misreads them: take other prompts; or draw more rounds or prompts, keep more, or go on with fewer: shortfall='accept'",
        ]
    )


def test_sample_until_goes_on_with_fewer_groups_if_it_may(sampled):
    metrics, position, _ = sampled({1}, rounds=2, shortfall="accept")

    assert (metrics["kept"], metrics["spare"], metrics["reward"], position) == (2, 0, 2.0, 4)
