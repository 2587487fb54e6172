"""Rows that are carried from step to step stay on Ray's workers."""

import pytest
import torch
from optree import tree_map

import flowrl as fl
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.runtime.pools.held import Held
from programs.dapo import dapo
from tests.runtime import steps
from tests.runtime.ray import jobs
from tests.runtime.replay import replayed

SPLITS = {
    "one pool": (Pool("main"),),
    "sampling, data and training apart": (
        Pool("train", 0, ("policy.train",)),
        Pool("rollout", 0, ("policy.generate",)),
        Pool("data", 0, ("data", "reward")),
    ),
}


PROGRAMS = {
    "replay": (replayed, {"capacity": 6}),
    "surplus": (dapo, {"groups": 3, "samples": 2, "left_over": 2, "minibatch": 4}),
}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("buffer", PROGRAMS)
def test_metrics_and_carried_rows_are_those_of_one_process(
    buffer, split, model_folder, tokenizer, pools, tmp_path
):
    program, hyperparameters = PROGRAMS[buffer]
    traced = fl.trace(program, **hyperparameters)
    models = steps.roles(traced, model_folder, block=4)
    here = steps.executor(traced, models, tokenizer)
    expected, carry = jobs.run(here, steps.cursors(traced, tokenizer), 3)
    lowered = traced.lower(Cluster(SPLITS[split]), models)
    sizes = dict.fromkeys([pool.name for pool in SPLITS[split]], 1)
    there = jobs.executor(lowered, tokenizer, pools(**sizes))

    metrics, carried = jobs.run(there, there.cursors(), 3)

    assert metrics == expected
    written = []
    for name, executor, held in (("here", here, carry), ("there", there, carried)):
        assert executor.save_rows(str(tmp_path / name), held) == [buffer]
        found = torch.load(tmp_path / name / f"{buffer}.pt", weights_only=True)
        written.append(tree_map(lambda x: x.tolist() if isinstance(x, torch.Tensor) else x, found))
    assert written[0] == written[1]
    assert len(carried[buffer]) >= 8
    assert all(isinstance(value, Held) for value in carried[buffer].values())
    at = {name: value.lines[0].pool for name, value in carried[buffer].items()}
    assert at == {name: lowered.graph.input(name).pool for name in at}
