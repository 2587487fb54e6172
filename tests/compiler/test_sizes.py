"""How large the values of a step are expected to be."""

from inline_snapshot import snapshot

from flowrl.compiler.sizes import sizes_of
from flowrl.compiler.target import Lengths, Workload
from flowrl.ir.printer import names_of
from flowrl.ops.control import SampleUntil, Scan
from programs.dapo import dapo
from programs.dpo import dpo
from programs.grpo import grpo
from programs.ppo import ppo

WORKLOAD = Workload(64, Lengths.of(100), Lengths.of(300))


def test_values_count_their_first_axis_and_all_their_bytes():
    graph = grpo.trace({"samples": 8}).graph
    names = names_of(graph)

    sizes = sizes_of(graph, WORKLOAD)

    given = [value for _, value in graph.inputs]
    drawn = graph.nodes[0].results
    shown = {names[value]: (sizes.count(value), sizes.bytes(value)) for value in (*given, *drawn)}
    assert shown == snapshot(
        {
            "%policy": (1.0, 0.0),
            "%reference": (1.0, 0.0),
            "%prompts.context": (64, 25600.0),
            "%prompts.rows": (64, 512),
            "%0.tokens": (64, 614400.0),
            "%0.logprobs": (64, 614400.0),
            "%0.mask": (64, 153600.0),
            "%0.truncated": (64, 512),
            "%0.version": (64, 2048),
        }
    )


def test_a_division_counts_its_turns_and_a_turn_its_rows():
    graph = ppo.trace({"minibatch": 16, "epochs": 2}).graph
    (scan,) = (node for node in graph.nodes if isinstance(node.op, Scan))
    fields = dict(scan.op.body.inputs)

    sizes = sizes_of(graph, WORKLOAD)

    assert sizes.count(scan.args[0]) == 2 * 64 / 16
    assert sizes.count(fields["mb.tokens"]) == 16
    assert sizes.sequences(fields["mb.tokens"]) == 16


def test_a_prompt_of_pairs_has_two_samples():
    graph = dpo.trace().graph

    sizes = sizes_of(graph, WORKLOAD)

    assert sizes.sequences(graph.input("pairs.tokens")) == 2 * 64


def test_a_batch_of_dynamic_sampling_has_the_prompts_of_a_step_unless_its_groups_are_given():
    def groups(hyperparameters):
        graph = dapo.trace(hyperparameters).graph
        (until,) = (node for node in graph.nodes if isinstance(node.op, SampleUntil))
        return sizes_of(graph, WORKLOAD).count(until.results[0])

    assert groups({}) == 64
    assert groups({"groups": 48}) == 48
