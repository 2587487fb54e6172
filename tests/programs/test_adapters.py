"""A policy that is trained by an adapter takes the steps that peft takes in plain torch."""

from functools import partial

import attrs
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.testing import assert_close

import flowrl as fl
from flowrl.compiler.cluster import Cluster
from flowrl.ops.model import Base
from flowrl.runtime.model.lora import Lora, as_peft
from programs.grpo import grpo
from programs.ppo import ppo
from tests.programs import plain
from tests.programs.against import OPTIONS, Record, follow, measured
from tests.runtime import steps

LORA = Lora(rank=4, alpha=8.0, targets=("q_proj", "down_proj"), seed=3)
SHARED = Cluster(bases={"reference": ["policy"]})


@pytest.fixture
def ran(float64, model_folder, tokenizer):
    """Return a function that takes two steps: its record, metrics and the executor."""

    def run(program, cluster=None, **hyperparameters):
        record, traced = Record(), fl.trace(program, **hyperparameters)
        setup = steps.role(model_folder("llama"), dtype="float64", options=OPTIONS)
        adapted = attrs.evolve(setup, model=attrs.evolve(setup.model, lora=LORA))
        roles = {spec.name: setup for spec in traced.inputs if spec.kind == "model"}
        graph = traced.lower(cluster).graph
        made = steps.executor(
            traced,
            roles | {"policy": adapted},
            tokenizer,
            graph=graph,
            generator=record,
            score=record.score,
        )
        _, metrics = steps.run(made, steps.cursors(traced, tokenizer), steps=2)
        return record, metrics, made

    return run


@pytest.fixture
def by_peft(float64, model_folder):
    """Return the same policy, made by peft alone."""
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"])
    model = plain.language_model(model_folder("llama"))
    torch.manual_seed(3)
    return get_peft_model(model, config)


@pytest.mark.parametrize("cluster", [None, SHARED])
def test_grpo_steps_as_peft_does(cluster, ran, by_peft, model_folder):
    record, metrics, made = ran(grpo, cluster, samples=3, kl_coef=0.3)

    start = {n: p.detach().clone() for n, p in by_peft.named_parameters()}
    reference = plain.language_model(model_folder("llama"))
    batches = zip(record.groups, record.rewards, strict=True)
    last = follow(by_peft, [partial(plain.grpo, by_peft, reference, *b, 0.3) for b in batches])
    assert measured(metrics) == last
    weights = as_peft(made.host.models["policy"].engine.weights())
    theirs = {n.replace(".default.", "."): p for n, p in by_peft.named_parameters()}
    moved = {n for n, p in by_peft.named_parameters() if not torch.equal(p, start[n])}
    assert weights.keys() == {name.replace(".default.", ".") for name in moved}
    for name, x in weights.items():
        assert_close(x, theirs[name].detach(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("program", [grpo, ppo])
def test_a_reference_under_the_adapter_is_a_reference_of_its_own(program, ran):
    runs = {}
    for name, cluster in (("own", None), ("shared", SHARED)):
        _, metrics, made = ran(program, cluster)
        bases = [node for node in made.graph.nodes if isinstance(node.op, Base)]
        weights = made.host.models["policy"].engine.weights()
        runs[name] = len(bases), set(made.host.models), metrics, weights

    assert [runs[name][0] for name in runs] == [0, 1]
    assert runs["own"][1] - runs["shared"][1] == {"reference"}
    assert runs["own"][2] == runs["shared"][2]
    assert_close(runs["own"][3], runs["shared"][3], atol=0, rtol=0)
