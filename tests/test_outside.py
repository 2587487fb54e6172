"""A program outside the repository runs as it stands, and docs/extending.md shows it."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from flowrl.compiler.cluster import Cluster
from flowrl.config.toml.structure import structure
from flowrl.errors import Location
from flowrl.ir.builder import GraphBuilder, Rewriter
from flowrl.ir.graph import Graph
from flowrl.ir.types import f32
from flowrl.ops.move import Transfer
from flowrl.rewards.server import ServerSpec
from tests.train.conftest import make_model, model, records  # noqa: F401

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]
OUTSIDE = ROOT / "tests" / "outside"
FENCES = re.findall(r"```\w+\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.DOTALL)


@pytest.fixture
def outside(tmp_path, model):  # noqa: F811
    """A folder with the program, its rows and reward, its run file and a model."""
    for file in OUTSIDE.glob("*.*"):
        shutil.copy(file, tmp_path)
    shutil.copytree(model, tmp_path / "model")
    return tmp_path


def flowrl(folder, *arguments):
    """Call the command as a user does, with no other path to the repository than its install."""
    command = [str(Path(sys.executable).with_name("flowrl")), *arguments]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_a_program_with_its_own_op_tensor_model_role_and_second_rollout_runs(outside):
    done = flowrl(outside, "run", "rival.toml")

    assert done.returncode == 0, done.stderr
    steps = records(outside / "runs" / "rival")
    assert [record["step"] for record in steps] == [1, 2]
    assert steps[0]["apart"] == pytest.approx(0.5, abs=1e-5)  # rival and policy start equal
    assert abs(steps[1]["apart"] - 0.5) > 1e-4
    assert {"reward", "bar", "policy/loss"} <= steps[0].keys()
    assert (outside / "runs" / "rival" / "checkpoint" / "policy" / "config.json").is_file()


def test_terms_of_a_loss_schedules_and_further_rewards_are_expressions(outside):
    done = flowrl(outside, "run", "terms.toml")

    assert done.returncode == 0, done.stderr
    first, second = records(outside / "runs" / "terms")
    assert (first["bonus"], second["bonus"]) == (pytest.approx(0.01), pytest.approx(0.0099))
    each = [first["rewards/reward"], first["rewards/brief"]]
    assert first["rewards"] == pytest.approx(sum(each) / 2, abs=1e-6)


def test_it_runs_by_hand(outside):
    command = [sys.executable, "by_hand.py"]

    done = subprocess.run(command, cwd=outside, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("f32[] = 0.5 ")  # rival and policy start equal


def test_it_is_checked_before_anything_is_loaded(outside):
    shutil.rmtree(outside / "model")

    done = flowrl(outside, "check", "rival.toml")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("`rival.toml` and its program `rival` are sound.")


@pytest.mark.parametrize("file", sorted(path.name for path in OUTSIDE.glob("*.*")))
def test_the_guide_shows_each_file_as_it_stands(file):
    assert (OUTSIDE / file).read_text() in FENCES


def test_the_pass_that_the_guide_shows_is_one():
    (source,) = [fence for fence in FENCES if "-> Graph:" in fence]
    names = {"Rewriter": Rewriter, "Transfer": Transfer, "Graph": Graph, "Cluster": Cluster}
    exec(source, names)
    builder = GraphBuilder("moves")
    loc = Location.of_caller()
    x = builder.input("x", f32(), "a")
    (home,) = builder.add(Transfer("a", "a"), [x], loc, "a")
    (away,) = builder.add(Transfer("a", "b"), [home], loc, "b")

    made = names["drop_transfers_home"](builder.finish([("y", away)]), Cluster())

    assert [node.op for node in made.nodes] == [Transfer("a", "b")]


def test_the_servers_of_rewards_that_the_docs_show_are_sound():
    (shown,) = (text for text in FENCES if "[reward.judge]" in text)

    tables = tomllib.loads(shown)["reward"]

    specs = [structure(ServerSpec, table, ("reward", name)) for name, table in tables.items()]
    assert [spec.kind for spec in specs] == ["json", "classify", "chat"]
    assert sorted(specs[2].takes.needed) == ["answer", "question"]
