"""The benchmark of faults: runs with vLLM that go wrong are stopped, others are not."""

import pytest

from benchmarks.chain_sum import fault
from flowrl.runtime.engines.vllm.generator import VLLMGenerator
from tests.conformance.conftest import MISSING
from tests.conformance.test_runs import folder, policy, run  # noqa: F401
from tests.train.conftest import make_model  # noqa: F401

pytestmark = MISSING
SETS = ("train.steps=4", "optimizer.learning_rate=0.01", "train.max_logprob_mismatch=0.01")


@pytest.fixture
def path(folder, monkeypatch):  # noqa: F811
    """Return a run file whose run has been done; its engine is as it was afterwards."""
    run(folder, "train.steps=1")
    monkeypatch.setattr(VLLMGenerator, "generate", VLLMGenerator.generate)
    return str(folder.path / "run.toml")


@pytest.mark.parametrize(
    ("name", "told"),
    [("tensor", "`model.norm.weight` differs in 1 of 64"), ("cache", "logprob_gap_max is")],
)
def test_a_fault_ends_the_run_with_what_it_is(path, capsys, name, told):
    assert fault.main(name, path, SETS, after=1) == 0

    said = capsys.readouterr().out
    before, _, after = said.partition("now, with weights of version 1: ")
    assert "stopped" not in before
    assert told in after


def test_a_run_without_its_fault_is_not_stopped(path, capsys):
    assert fault.main("tensor", path, SETS, after=9) == 1

    assert "the run was not stopped" in capsys.readouterr().out
