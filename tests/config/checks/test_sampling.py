"""What programs and evaluations sample, held against the engines that do."""

import pytest
from inline_snapshot import snapshot

from flowrl.config.checks.program import check_run
from flowrl.config.checks.sampling import Room, held_out_room, room_of
from flowrl.config.traced import trace_run
from flowrl.errors import RunFileError

PROGRAM = """\
import flowrl as fl
from flowrl import ops


@fl.program
def hot(policy: fl.Model, prompts: fl.Prompts, *, temperature=3.0, most=16):
    rollouts = ops.generate(policy, prompts, n=2, temperature=temperature, max_tokens=most)
    _, rewards = ops.score("exact", rollouts)
    return {"reward": rewards.mean()}
"""
RUN = """\
[program]
file = "hot.py"
[models.policy]
path = "model"
[engines.policy.generate]
engine = "vllm"
max_tokens = 8
[engines.policy.generate.vllm]
max_model_len = 40
[data]
source = "train.jsonl"
[reward]
exact = "reward.py:exact"
[train]
steps = 1
prompts_per_step = 2
"""
EVAL = "[eval]\n"


@pytest.fixture
def sampled(load, tmp_path):
    """Return a function that gives a run, its graph and its arguments."""
    (tmp_path / "hot.py").write_text(PROGRAM)

    def sampled(*sets, added=""):
        run = load(added, *sets, text=RUN)
        traced = trace_run(run)
        return run, traced.graph, traced.program.inputs

    return sampled


def error_of(given):
    with pytest.raises(RunFileError) as error:
        check_run(*given)
    return str(error.value)


def test_a_temperature_of_the_program_that_its_engine_does_not_sample_at(sampled):
    assert error_of(sampled()) == snapshot("""\
`engines.policy.generate.engine` = "vllm" samples at temperature 0, and from 0.01 to 2; got 3
  hot.py:7
    7 |     rollouts = ops.generate(policy, prompts, n=2, temperature=temperature, max_tokens=most)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: take another temperature, or `engine = "hf"`\
""")
    check_run(*sampled("program.temperature=2.0"))
    check_run(*sampled("engines.policy.generate={}"))


def test_a_temperature_of_the_evaluation_that_its_engine_does_not_sample_at(sampled):
    given = sampled("program.temperature=1.0", "eval.temperature=0.005", added=EVAL)

    assert error_of(given) == snapshot("""\
`engines.policy.generate.engine` = "vllm" samples at temperature 0, and from 0.01 to 2; got 0.005
  --set eval.temperature=0.005
help: take another temperature, or `engine = "hf"`\
""")


def test_completions_that_leave_no_room_for_a_prompt(sampled):
    cool = "program.temperature=1.0"

    assert error_of(sampled(cool, "program.most=40")) == snapshot("""\
`engines.policy.generate.vllm.max_model_len` = 40 leaves no room for a prompt beside a completion of 40
  run.toml:9
    9 | max_model_len = 40
        ^^^^^^^^^^^^^
help: raise it, or sample fewer tokens\
""")
    given = sampled(cool, "eval.max_tokens=50", added=EVAL)
    assert error_of(given) == snapshot("""\
`engines.policy.generate.vllm.max_model_len` = 40 leaves no room for a prompt beside a completion of 50
  run.toml:9
    9 | max_model_len = 40
        ^^^^^^^^^^^^^
help: raise it, or sample fewer tokens\
""")


def test_the_room_of_prompts_is_what_completions_leave(sampled):
    run, graph, _ = sampled("eval.max_tokens=30", added=EVAL)
    key = "engines.policy.generate.vllm.max_model_len"

    assert room_of(run, graph) == Room(key, 40, 16)
    assert held_out_room(run, "policy") == Room(key, 40, 30)
    assert str(room_of(run, graph)) == snapshot(
        "`engines.policy.generate.vllm.max_model_len` = 40 leaves 24 beside 16 of a completion"
    )
    silent, graph, _ = sampled("engines.policy.generate={}")
    assert room_of(silent, graph) is None
