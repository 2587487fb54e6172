"""What a run writes of its ops."""

import json
from statistics import median

import pytest

from flowrl.compiler.target import Profile
from flowrl.config.run_file import load_run_file
from flowrl.ir.plan import Plan
from flowrl.ops.control import ControlOp
from flowrl.ops.names import named_nodes
from flowrl.train.op_log import OPS, OpLog
from flowrl.train.prepare import lower
from tests.train.test_fit import by_kind, opened, step

MACHINES = """
[cluster]
machines = "1xCPU"
[workload]
prompt_tokens = 3
response_tokens = 6
"""


def records(folder):
    return [json.loads(line) for line in (folder.path / "out" / OPS).read_text().splitlines()]


def test_each_step_has_a_record_of_every_op_and_one_of_itself(folder):
    folder.run("ppo", "train.steps=2")
    graph = lower(load_run_file(str(folder.path / "run.toml"))).graph
    named = [n for n, node in named_nodes(graph) if not isinstance(node.op, ControlOp)]

    found = records(folder)

    assert [(r["step"], r["op"]) for r in found] == [(s, n) for s in (1, 2) for n in (*named, "")]
    assert all(r["seconds"] > 0 and r["times"] > 0 for r in found)


def test_a_record_says_what_an_op_is(folder):
    folder.run("grpo", "train.steps=1")
    about = {(r["kind"], r["role"], r["pool"]) for r in records(folder)}

    assert {("generate", "policy", "main"), ("logprobs", "reference", "main")} <= about
    assert ("step", "", "") in about


def test_records_are_as_rare_as_those_of_metrics(folder):
    folder.run("sft", "log.every_steps=2")

    assert {r["step"] for r in records(folder)} == {2, 3}


def test_only_the_newest_steps_are_kept_for_a_profile(folder, tmp_path):
    run = load_run_file(folder.write("grpo"))
    graph = lower(run).graph

    with OpLog(tmp_path, graph, run.log) as log:
        for number in range(1, 151):
            log.write(number, step(graph, elapsed=float(number)))

    assert [done.elapsed for done in log.recent] == [float(n) for n in range(51, 151)]


def test_a_plan_beside_the_results_has_what_was_predicted_under_the_names_of_what_ran(folder):
    folder.run("grpo", "train.steps=1", added=MACHINES)

    plan = Plan.from_json((folder.path / "out" / "plan.json").read_text())
    kinds = {name: node.op.name for name, node in named_nodes(plan.graph())}

    assert plan.machines == "1xCPU"
    assert [kinds[task["op"]] for task in plan.forecast["tasks"]] == [
        "generate",
        "logprobs",
        "update",
    ]


def test_a_run_that_can_not_be_planned_runs_and_says_why(folder, capsys):
    folder.run("sft", "train.steps=1", 'workload.profile="nowhere"', added=MACHINES)

    assert "what the run takes is not predicted: " in capsys.readouterr().out
    assert not Plan.from_json((folder.path / "out" / "plan.json").read_text()).forecast


@pytest.mark.parametrize("program", ["grpo", "ppo"])
def test_plans_by_a_runs_profile_are_nearer_to_what_it_took(folder, program):
    hours = {("CPU", kind): 1e4 for kind in ("generate", "logprobs", "values", "update")}
    Profile().fitted(dict.fromkeys(hours, 0.02), hours).save(folder.path / "hours.json")
    folder.run(program, 'workload.profile="hours.json"', added=MACHINES)
    took = {}
    for record in records(folder):
        took.setdefault(record["kind"], []).append(record["seconds"])

    def off(*sets):
        plan, _ = opened(str(folder.path / "run.toml"), *sets)
        return sum(abs(s - median(took[kind])) for kind, s in by_kind(plan).items())

    assert off('workload.profile="out"') < off('workload.profile="hours.json"')
