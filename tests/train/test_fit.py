"""Steps of a run, and the profile by which plans predict them."""

import attrs
import pytest

from flowrl.compiler.forecast import forecast
from flowrl.compiler.target import Profile
from flowrl.config.planned import plan_run
from flowrl.config.run_file import load_run_file
from flowrl.ops.names import named_nodes
from flowrl.runtime.executor import Step
from flowrl.runtime.measures import Measured
from flowrl.train.fit import fitted
from flowrl.train.predict import as_run
from flowrl.train.prepare import lower

ON_CPU = ('cluster.machines="1xCPU"', "workload.response_tokens=6", "workload.prompt_tokens=3")
TOOK = {"generate": 1.0, "logprobs": 0.5, "update": 3.0}
TWO_POOLS = (
    'cluster.executor="ray"',
    'cluster.pools.train={gpus=1,roles=["policy.train","reference"]}',
    'cluster.pools.rollout={gpus=1,roles=["policy.generate"]}',
)


def opened(file, *sets):
    """Return the plan of a run file, and the graph that it runs."""
    run = load_run_file(file, (*ON_CPU, *sets))
    return plan_run(run)[1], lower(run).graph


def step(graph, elapsed=5.0, sampled=96.0, **took):
    """Return a step as an executor gives it: 16 sequences of 6 tokens unless said otherwise."""
    kinds = TOOK | took
    named = [(name, node.op.name) for name, node in named_nodes(graph)]
    ops = {name: Measured(1, kinds[kind]) for name, kind in named if kind in kinds}
    return Step({}, {"tokens/sampled": sampled}, {}, elapsed, ops)


def by_kind(plan):
    """Return the predicted seconds of a plan by kind of task."""
    found = {}
    for each in forecast(plan).tasks:
        found[each.task.kind] = found.get(each.task.kind, 0.0) + each.spent.seconds
    return found


def test_a_plan_predicts_the_run_that_its_profile_is_of(folder, tmp_path):
    plan, graph = opened(folder.write("grpo"))
    steps = [
        step(graph),
        step(graph, generate=2.0, update=3.5, elapsed=6.5),
        step(graph, generate=1.5, update=9.0, elapsed=12.0),
    ]

    found = fitted(plan, graph, steps)
    found.profile.save(tmp_path / "profile.json")
    again, _ = opened(folder.write("grpo"), f'workload.profile="{tmp_path}/profile.json"')

    assert by_kind(again) == pytest.approx({"generate": 1.5, "logprobs": 0.5, "update": 3.5})
    assert found.step == 6.5
    assert found.rest == pytest.approx(0.5)


def test_work_of_one_kind_is_told_from_that_of_another(folder):
    plan, graph = opened(folder.write("ppo"))
    values = step(graph, values=4.0, logprobs=1.0)
    logprobs = step(graph, values=1.0, logprobs=4.0)

    slow, fast = (fitted(plan, graph, [each]).profile for each in (values, logprobs))

    assert slow.of("CPU", "values").flops < fast.of("CPU", "values").flops
    assert slow.of("CPU", "logprobs").flops > fast.of("CPU", "logprobs").flops


def test_other_kinds_of_gpus_keep_their_speeds(folder):
    plan, graph = opened(folder.write("grpo"))

    found = fitted(plan, graph, [step(graph)])

    assert found.profile.of("H100", "update") == Profile().of("H100", "update")
    assert found.profile.of("CPU", "update") != Profile().of("CPU", "update")


def test_the_profile_is_of_the_lengths_that_were_sampled(folder):
    plan, graph = opened(folder.write("grpo"))

    long, short = (fitted(plan, graph, [step(graph, sampled=n)]).profile for n in (96.0, 48.0))
    slower, faster = (profile.of("CPU", "generate") for profile in (short, long))

    assert slower.flops < faster.flops, "half the tokens in the same time"


def test_work_that_no_step_measured_keeps_its_speeds(folder):
    plan, graph = opened(folder.write("grpo"))
    done = step(graph)
    ops = {name: its for name, its in done.ops.items() if its.seconds != TOOK["logprobs"]}

    found = fitted(plan, graph, [attrs.evolve(done, ops=ops)])

    assert [each.kind for each in found.work] == ["generate", "update"]
    assert found.profile.of("CPU", "logprobs") == Profile().of("CPU", "logprobs")


def test_a_plan_predicts_how_long_weights_took_to_move(folder, tmp_path):
    sets = (*TWO_POOLS, 'cluster.machines="2xH100"')
    plan, graph = opened(folder.write("grpo"), *sets)
    (edge,) = (edge for edge in as_run(forecast(plan), plan.graph, graph).edges if edge.ratio)
    done = step(graph)
    moved = attrs.evolve(done, ops={**done.ops, edge.name: Measured(1, 0.25, 1000)})

    fitted(plan, graph, [moved]).profile.save(tmp_path / "profile.json")
    again, _ = opened(folder.write("grpo"), *sets, f'workload.profile="{tmp_path}/profile.json"')

    (found,) = (edge.seconds for edge in forecast(again).edges if edge.ratio)
    assert found == pytest.approx(0.25)


def test_a_plan_with_other_pools_names_the_ops_as_they_run(folder):
    plan, graph = opened(folder.write("ppo"))
    names = {name: node.op.name for name, node in named_nodes(graph)}

    found = as_run(forecast(plan), plan.graph, graph)

    assert {each.task.name: each.task.kind for each in found.tasks}.items() <= names.items()
    assert [each.task.name for each in found.tasks] != [task.name for task in plan.tasks]
    assert found.edges == (), "in one process nothing moves"
