"""What a run is predicted to take is what it holds."""

import pytest

from flowrl.compiler.forecast import forecast
from flowrl.config.run_file import load_run_file
from flowrl.runtime.host import Host
from flowrl.runtime.local import load_models
from flowrl.train.predict import planned_as
from flowrl.train.prepare import load_tokenizers, lower
from tests.train.conftest import PROGRAMS

ON_CPU = ('cluster.machines="1xCPU"', "workload.response_tokens=6", "workload.prompt_tokens=3")
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


@pytest.fixture
def predicted(folder):
    """Return a function from a program to its lowered graph and the plan of its run."""

    def predicted(program="grpo", *sets, added="", **parts):
        run = load_run_file(folder.write(program, added, **parts), (*ON_CPU, *sets))
        lowered = lower(run)
        return lowered, planned_as(run, lowered, pytest.fail)

    return predicted


def memory_of(planned):
    """Return what each seat takes, awake, by item."""
    return {str(of.seat): of.items for of in forecast(planned).memory}


def test_a_mean_of_weights_is_predicted_to_take_what_its_engine_holds(folder, predicted):
    (folder.path / "tethered.py").write_text(TETHERED)
    grpo = PROGRAMS["grpo"]
    lowered, planned = predicted(
        "tethered.py", **grpo | {"models": grpo["models"].format(model=folder.model)}
    )

    took, host = memory_of(planned)["reference.train"], Host()
    load_models(lowered.graph, lowered.models, load_tokenizers(lowered), host)

    engine = host.models["reference"].engine
    assert not hasattr(engine, "optimizer")
    held = sum(p.nbytes for p in engine.model.parameters())
    assert (took["weights"], took["gradients"], took["optimizer"]) == (held, 0, 0)
