"""Pictures of graphs."""

import re
import shutil
from xml.etree import ElementTree

import pytest
from inline_snapshot import external_file

import flowrl as fl
from flowrl import ops
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.compiler.pipeline import compile_graph
from flowrl.config.programs import builtin_programs, load_program
from flowrl.errors import FlowrlError
from flowrl.report.drawing import draw
from flowrl.report.graph import dot, mermaid, svg
from flowrl.report.shapes import Look

SPLIT = Cluster(
    (
        Pool("train", 1, ("policy.train", "critic")),
        Pool("rollout", 1, ("policy.generate", "reference", "data", "reward")),
    )
)


def graph(name, **hyperparameters):
    return fl.trace(load_program(name), **hyperparameters).graph


def shapes_of(box):
    """Return the shapes in a box and in those inside it, with the titles of all around each."""
    found = [((box.title,), shape) for shape in box.shapes]
    inner = [pair for each in box.boxes for pair in shapes_of(each)]
    return found + [((box.title, *titles), shape) for titles, shape in inner]


def titled(drawing):
    """Return each shape's first line by its id."""
    return {shape.id: shape.lines[0] for _, shape in shapes_of(drawing.box)}


def test_grpo_as_mermaid():
    """`pytest --inline-snapshot=fix` renews it."""
    assert mermaid(graph("grpo")) + "\n" == external_file("grpo.mermaid", format=".txt")


def test_grpo_on_two_pools_as_dot():
    """`pytest --inline-snapshot=fix` renews it."""
    lowered = compile_graph(graph("grpo"), SPLIT)

    assert dot(lowered) + "\n" == external_file("grpo.dot", format=".txt")


def test_grpo_reads_at_a_glance():
    drawing = draw(graph("grpo"))

    assert sorted(titled(drawing).values()) == sorted(
        [
            *("policy", "reference", "prompts", "generate", "score", "group_advantage"),
            *("logprobs", "forward policy", "clipped_surrogate", "kl", "mul 0.001", "add"),
            *("token_mean", "update policy", "next policy", "metrics"),
        ]
    )


def test_models_data_and_tensors_look_different():
    looks = {shape.lines[0]: shape.look for _, shape in shapes_of(draw(graph("grpo")).box)}

    assert looks["policy"] is Look.MODEL
    assert looks["prompts"] is Look.DATA
    assert looks["generate"] is Look.ENGINE
    assert looks["score"] is Look.WORLD
    assert looks["group_advantage"] is Look.TENSOR


def test_edges_are_labelled_with_types():
    drawing = draw(graph("grpo"))
    names = titled(drawing)

    labels = {(names[a], names[b]): edge.lines() for (a, b), edge in drawing.edges.items()}

    assert labels["score", "group_advantage"] == ["rewards: f32[prompt, sample]"]
    assert labels["group_advantage", "clipped_surrogate"] == ["f32[prompt, sample]"]
    assert labels["policy", "generate"] == ["model<policy>"]


def test_a_loss_is_drawn_inside_its_update():
    places = {shape.lines[0]: titles for titles, shape in shapes_of(draw(graph("ppo")).box)}

    assert places["clipped_surrogate"] == ("ppo", "scan", "update policy")
    assert places["clipped_value"] == ("ppo", "scan", "update critic")
    assert places["gae"] == ("ppo",)


def test_pools_are_boxes_and_what_crosses_them_is_a_transfer():
    drawing = draw(compile_graph(graph("grpo"), SPLIT))
    places = {shape.id: titles for titles, shape in shapes_of(drawing.box)}
    names = titled(drawing)
    pool = {id: titles[1] for id, titles in places.items() if len(titles) > 1}

    crossing = {ends for ends in drawing.edges if pool.get(ends[0]) and pool.get(ends[1])}
    crossing = {(a, b) for a, b in crossing if pool[a] != pool[b]}

    assert crossing == {ends for ends, edge in drawing.edges.items() if edge.transfer}
    assert {(names[a], names[b]) for a, b in crossing} == {
        ("policy", "generate"),
        ("score", "forward policy"),
        ("score", "clipped_surrogate"),
        ("group_advantage", "clipped_surrogate"),
        ("logprobs", "kl"),
    }


def test_one_pool_needs_no_transfer():
    drawing = draw(compile_graph(graph("ppo"), Cluster()))

    assert not any(edge.transfer for edge in drawing.edges.values())


def test_control_flow_and_carries_are_drawn():
    @fl.program
    def filtered(policy: fl.Model, prompts: fl.Prompts, baseline: fl.Carry = fl.Carry(0.0)):
        def draw_(some):
            rollouts, rewards = ops.score("reward", ops.generate(policy, some, n=4))
            return ops.record(rollouts, rewards=rewards)

        def keep(record):
            return record.rewards.std(over="sample") > 0

        batch, _, _ = ops.sample_until(draw_, keep, prompts, groups=4, rounds=2)
        mean = batch.rewards.mean()
        level = ops.cond(mean > 0.5, lambda x: x * 2, lambda x: x + baseline, mean)
        policy, stats = ops.update(
            policy, lambda new: ops.token_mean(-new.logprobs * level, batch.mask), batch
        )
        return policy, level, stats

    drawing = draw(fl.trace(filtered).graph)
    places = {shape.lines[0]: titles for titles, shape in shapes_of(drawing.box)}

    assert places["generate"] == ("filtered", "sample_until")
    assert places["mul 2"] == ("filtered", "cond", "then")
    assert places["next baseline"] == ("filtered",)


@pytest.mark.parametrize("name", builtin_programs())
@pytest.mark.parametrize("cluster", [None, Cluster(), SPLIT], ids=["traced", "one", "two"])
def test_every_edge_joins_drawn_shapes_and_every_label_is_quoted(name, cluster):
    drawn = graph(name) if cluster is None else compile_graph(graph(name), cluster)
    drawing = draw(drawn)
    known = set(titled(drawing))

    assert {end for ends in drawing.edges for end in ends} <= known
    assert all(line.count('"') % 2 == 0 for line in mermaid(drawn).splitlines())
    assert re.fullmatch(r"\w+", "".join(known))


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz isn't installed")
@pytest.mark.parametrize("name", builtin_programs())
def test_graphviz_draws_every_program(name):
    picture = ElementTree.fromstring(svg(compile_graph(graph(name), SPLIT)))

    texts = {"".join(text.itertext()) for text in picture.iter("{http://www.w3.org/2000/svg}text")}

    assert "pool rollout" in texts or name in ("sft", "dpo", "reward_model")
    assert texts & {"next policy", "next model"} or name == "evaluate"


def test_without_graphviz_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "")

    with pytest.raises(FlowrlError) as caught:
        svg(graph("sft"))

    assert str(caught.value) == (
        "drawing an svg needs Graphviz, and there is no `dot` on the path\n"
        "help: install it (`apt-get install graphviz`), or take `--format mermaid`"
    )
