"""What ops take on simulated workers."""

from random import Random

import pytest

from flowrl.compiler.target import Lengths
from flowrl.simulate.work import Work, drawn_lengths

TAILED = Lengths.of({"mean": 600, "max": 4096})


def test_drawn_lengths_have_the_mean_of_their_distribution():
    drawn = drawn_lengths(TAILED, 20_000, Random(0))

    assert drawn.mean == pytest.approx(TAILED.mean, rel=0.02)
    assert {tokens for tokens, _ in drawn.shares} <= {tokens for tokens, _ in TAILED.shares}


def test_sequences_are_shared_by_engines_as_evenly_as_may_be(case):
    work = Work.of(case("grpo", prompts=3, hyperparameters={"samples": 3}).plan)
    task = next(task for task in work.tasks.values() if task.kind == "generate")

    seconds = [work.sampling(task, worker, 8, Random(0)) for worker in range(8)]

    assert seconds[0] > seconds[1], "9 samples on 8 engines: the first has two"
    assert len(set(seconds[1:])) == 1


def test_an_engine_without_samples_is_done_at_once(case):
    work = Work.of(case("grpo", prompts=1, hyperparameters={"samples": 2}).plan)
    task = next(task for task in work.tasks.values() if task.kind == "generate")

    assert work.sampling(task, 2, 8, Random(0)) == 0


def test_pools_have_a_worker_for_each_engine(case):
    plan = case("grpo").plan
    main, data = plan.cluster.pools

    layout = next(its.layout for seat, its in plan.found.seats.items() if seat.use == "generate")

    assert Work.of(plan).workers(main) == 8 // layout.tp // layout.pp
    assert Work.of(plan).workers(data) == 1
