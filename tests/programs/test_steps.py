"""Every program that comes with flowrl takes steps."""

import math

import pytest

from flowrl.config.programs import builtin_programs, load_program
from flowrl.stages import trace
from tests.graphs import CLUSTERS
from tests.programs.small import small
from tests.runtime import steps


@pytest.mark.parametrize("name", builtin_programs())
def test_two_steps_have_finite_metrics_and_change_what_is_trained(name, model_folder, tokenizer):
    program = load_program(name)
    traced = trace(program, **small(program))
    made = steps.executor(traced, steps.roles(traced, model_folder), tokenizer)
    cursors = steps.cursors(traced, tokenizer)
    before = steps.weights(made.first())

    carry, metrics = steps.run(made, cursors, steps=2)

    after = steps.weights(carry)
    changed = {
        role for role, weight in before if (before[role, weight] != after[role, weight]).any()
    }
    assert {k: v for k, v in metrics.items() if not math.isfinite(v)} == {}
    assert changed == {key.removesuffix("/loss") for key in metrics if key.endswith("/loss")}


@pytest.mark.parametrize("name", builtin_programs())
def test_every_pass_keeps_what_two_steps_give(name, model_folder, tokenizer):
    program = load_program(name)
    traced = trace(program, **small(program))
    models = steps.roles(traced, model_folder)
    stages = [traced.graph]
    traced.lower(CLUSTERS[2], watch=lambda name, graph: stages.append(graph))

    def outcome(graph):
        made = steps.executor(traced, models, tokenizer, graph=graph)
        carry, metrics = steps.run(made, steps.cursors(traced, tokenizer), steps=2)
        return metrics, steps.weights(carry)

    metrics, weights = outcome(stages[0])
    for stage in stages[1:]:
        found, changed = outcome(stage)
        assert found == metrics
        assert all(weight.equal(weights[name]) for name, weight in changed.items())
