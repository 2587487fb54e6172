"""A plan is data: the same graph when read back, for every program at every stage."""

import json

import pytest
from inline_snapshot import snapshot

from flowrl.compiler.emit import emit
from flowrl.compiler.pipeline import compile_graph
from flowrl.config.programs import builtin_programs, load_program
from flowrl.errors import ProgramError
from flowrl.ir.plan import Plan, decode, encode
from flowrl.ir.printer import text
from flowrl.ir.verify import verify
from flowrl.stages import trace
from tests.graphs import CLUSTERS
from tests.ir.source import traced

each_program = pytest.mark.parametrize("name", builtin_programs())


@each_program
@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
def test_every_stage_of_a_program_is_the_same_when_decoded(name, cluster):
    stages = [trace(load_program(name)).graph]
    compile_graph(stages[0], cluster, lambda name, graph: stages.append(graph))

    for stage in stages:
        data = json.loads(json.dumps(encode(stage)))
        assert text(verify(decode(data))) == text(stage)


@each_program
def test_a_plan_is_the_same_when_read_back(name):
    graph = compile_graph(trace(load_program(name)).graph, CLUSTERS[2])
    plan = emit(graph, CLUSTERS[2], {"policy": {"temperature": 0.7}})

    again = Plan.from_json(plan.to_json())

    assert again.to_json() == plan.to_json()
    assert text(again.graph()) == text(graph)


def test_hyperparameters_of_any_kind_survive():
    graph = traced(
        """
        @fl.program
        def step(policy: fl.Model, *, pair=(1, 0.5), lines=["a"], table={"x": {"y": None}}):
            return {}
        """
    )

    assert (
        text(decode(encode(graph)))
        == text(graph)
        == snapshot("""\
graph step {pair=[1, 0.5], lines=[a], table={'x': {'y': None}}}
  input %policy: model<policy>
  return\
""")
    )


def test_a_users_op_goes_into_the_plan_as_its_path_and_hash():
    graph = traced(
        """
        @fl.op("f32[prompt, context] -> f32[prompt]", per="sample")
        def longest(x, *, scale=1.0):
            return scale * x.max()

        @fl.program
        def step(policy: fl.Model, prompts: fl.Prompts):
            return {"x": longest(prompts.context.float(), scale=2.0).mean()}
        """
    )

    assert text(decode(encode(graph)), locations=False) == snapshot("""\
graph step
  input %policy: model<policy>
  input %prompts.context: i32[prompt, context]
  input %prompts.rows: row[prompt]
  %0: f32[prompt, context] = float(%prompts.context)
  %1: f32[prompt] = longest(%0) {scale=2, code="example.py:longest#de926a08"}
  %2: f32[] = mean(%1)
  return metrics.x=%2\
""")


def test_a_plan_of_another_format_is_refused():
    with pytest.raises(ProgramError) as error:
        Plan.from_json('{"format": 0}')

    assert str(error.value) == snapshot("""\
expected a plan of format 3; got 0
help: make it again with this version: `flowrl show PROGRAM --stage plan`\
""")
