"""Every program that comes with flowrl takes steps."""

import math

import pytest

from flowrl.config.programs import builtin_programs, load_program
from flowrl.stages import trace
from tests.runtime import steps

SMALL = {
    "cispo": {"samples": 2, "minibatch": 4},
    "clip_cov": {"samples": 2, "minibatch": 4, "low": -5.0},
    "dapo": {"groups": 3, "samples": 2, "minibatch": 4, "overlong": (6, 4)},
    "gspo": {"samples": 2, "minibatch": 4},
    "kl_cov": {"samples": 2, "minibatch": 4},
    "ppo": {"minibatch": 2},
}
"""Hyperparameters for a batch of 4 prompts; minibatches make two updates of it."""


@pytest.mark.parametrize("name", builtin_programs())
def test_two_steps_have_finite_metrics_and_change_what_is_trained(name, model_folder, tokenizer):
    traced = trace(load_program(name), **SMALL.get(name, {}))
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
