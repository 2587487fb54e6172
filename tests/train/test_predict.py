"""What a run is predicted to take is what it holds."""

import pytest
from inline_snapshot import snapshot

from flowrl.compiler.forecast import forecast
from flowrl.config.run_file import load_run_file
from flowrl.runtime.host import Host
from flowrl.runtime.loading import Loader
from flowrl.train.predict import planned_as
from flowrl.train.prepare import load_tokenizers, lower
from tests.train.conftest import PROGRAMS

ON_CPU = ('cluster.machines="1xCPU"',)
LENGTHS = ("workload.response_tokens=6", "workload.prompt_tokens=3")
TETHERED = """
import flowrl as fl
from flowrl import ops

@fl.program
def tethered(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts, *, samples=4):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=samples))
    anchor = ops.logprobs(reference, rollouts)
    policy, stats = ops.update(
        policy, lambda new: ops.token_mean(ops.kl(new.logprobs, anchor), rollouts.mask), rollouts
    )
    return policy, ops.ema(reference, policy, decay=0.9), stats
"""

GPU = """
[cluster]
machines = "1xH100"
executor = "{executor}"
[cluster.pools.main]
gpus = 1
roles = ["policy", "reference"]
{kept}
"""
QWEN = [f'models.{role}.path="Qwen/Qwen2.5-0.5B"' for role in ("policy", "reference")]
LORA = "models.policy.lora={rank=4}"
STAY = {"policy.train": "resident", "reference.score": "resident"}


@pytest.fixture
def said():
    """Return why runs are not predicted; it grows."""
    return []


@pytest.fixture
def predicted(folder, said):
    """Return a function from a program to its lowered graph and the plan of its run."""

    def predicted(program="grpo", *sets, added="", **parts):
        run = load_run_file(folder.write(program, added, **parts), (*LENGTHS, *sets))
        lowered = lower(run)
        return lowered, planned_as(run, lowered, said.append)

    return predicted


def memory_of(planned):
    """Return what each seat takes, awake, by item."""
    return {str(of.seat): of.items for of in forecast(planned).memory}


def test_a_mean_of_weights_is_predicted_to_take_what_its_engine_holds(folder, predicted):
    (folder.path / "tethered.py").write_text(TETHERED)
    grpo = PROGRAMS["grpo"]
    lowered, planned = predicted(
        "tethered.py", *ON_CPU, **grpo | {"models": grpo["models"].format(model=folder.model)}
    )

    took, host = memory_of(planned)["reference.train"], Host()
    Loader(lowered.graph, lowered.models, load_tokenizers(lowered), host).load()

    engine = host.models["reference"].engine
    assert not hasattr(engine, "optimizer")
    held = sum(p.nbytes for p in engine.model.parameters())
    assert (took["weights"], took["gradients"], took["optimizer"]) == (held, 0, 0)


def residencies_of(planned):
    return {str(seat): its.residency for seat, its in planned.found.seats.items()}


@pytest.mark.parametrize("executor", ["local", "ray"])
def test_weights_are_predicted_to_stay_where_a_run_does_not_let_them_go(executor, predicted):
    run = GPU.format(executor=executor, kept="")

    shared = predicted("grpo", *QWEN, added=run)[1]
    copied = predicted("grpo", *QWEN, LORA, added=run)[1]

    assert residencies_of(shared) == STAY | {"policy.generate": "alias"}
    assert residencies_of(copied) == {"policy.train": "resident", "policy.generate": "resident"}


@pytest.mark.parametrize(("executor", "kept"), [("local", "resident"), ("ray", "offload")])
def test_weights_that_a_run_lets_go_are_predicted_to_leave(executor, kept, predicted):
    given = 'residencies = { reference = "offload" }'

    planned = predicted("grpo", *QWEN, added=GPU.format(executor=executor, kept=given))[1]

    assert residencies_of(planned)["reference.score"] == kept


def test_a_run_on_the_cpu_is_not_predicted_by_a_plan_for_gpus(predicted, said):
    gpu = GPU.format(executor="local", kept="")

    planned = predicted("grpo", *QWEN, "cluster.pools.main.gpus=0", added=gpu)[1]

    assert planned is None
    assert said == snapshot(
        ["what the run takes is not predicted: no pool has GPUs, and `1xH100` has"]
    )


def test_a_run_that_does_not_fit_as_its_weights_stay_is_not_predicted(predicted, said):
    large = [path.replace("0.5B", "3B") for path in QWEN]

    planned = predicted("grpo", *large, added=GPU.format(executor="ray", kept=""))[1]

    assert planned is None
    assert said == snapshot(
        [
            "what the run takes is not predicted: the step doesn't fit on 1xH100: of all placements, the closest fit needs 11.6 GB more than the 81.2 GB of a GPU"
        ]
    )
