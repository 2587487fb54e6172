"""A frozen model that is the base under an adapter is read off the model with the adapter."""

import attrs
import pytest
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.compiler.bases import share_bases
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.compiler.pipeline import compile_graph
from flowrl.compiler.simplify import simplify
from flowrl.ir.printer import text
from flowrl.ir.verify import verify
from flowrl.ops.model import Base
from flowrl.ops.uses import uses_of
from programs.grpo import grpo
from programs.ppo import ppo

SHARED = Cluster(bases={"reference": ["policy"]})


@fl.program
def tethered(policy: fl.Model, reference: fl.Model, examples: fl.Examples):
    anchor = ops.logprobs(reference, examples)
    policy, stats = ops.update(
        policy, lambda new: ops.token_mean(ops.kl(new.logprobs, anchor), examples.mask), examples
    )
    return policy, stats


def bases(graph):
    return [f"{n.args[0].type} -> {n.results[0].type}" for n in graph.walk() if type(n.op) is Base]


def test_a_reference_is_read_off_the_policy():
    graph = share_bases(simplify(tethered.trace().graph, SHARED), SHARED)

    assert text(verify(graph)) == snapshot("""\
graph tethered
  input %policy: model<policy>
  input %reference: model<reference>
  input %examples.context: i32[example, context]
  input %examples.rows: row[example]
  input %examples.tokens: i32[example, token]
  input %examples.mask: bool[example, token]
  %0: model<reference> = base(%policy) {role=reference}  # test_bases.py:25
  %1: f32[example, token]{reference.0 T=1} = logprobs(%0, %examples.context, %examples.tokens)  # test_bases.py:25
  %2 = update(%policy, %examples.context, %examples.tokens) {reads=[logprobs]}  # test_bases.py:26
      .model: model<policy>
      .loss: f32[]
      .grad_norm: f32[]
      .learning_rate: f32[]
      .kl: f32[]
      region loss
        input %new.logprobs: f32[example, token]{policy.0 T=1}
        input %outer.0: f32[example, token]{reference.0 T=1} = %1
        input %outer.1: bool[example, token] = %examples.mask
        %0: f32[example, token] = kl(%new.logprobs, %outer.0) {estimator=k3, gradient=direct}  # test_bases.py:27
        %1: f32[] = token_mean(%0, %outer.1)  # test_bases.py:27
        return loss=%1, kl=%1
  return policy=%2.model, metrics.policy/loss=%2.loss, metrics.policy/grad_norm=%2.grad_norm,
      metrics.policy/learning_rate=%2.learning_rate, metrics.policy/kl=%2.kl\
""")
    assert list(uses_of(graph)) == ["policy"]
    assert text(share_bases(graph, SHARED)) == text(graph)


def test_the_base_lies_as_its_policy_does():
    pool = Pool("all", 4, ("policy", "reference"), {"policy": "fsdp4"})

    graph = compile_graph(ppo.trace().graph, attrs.evolve(SHARED, pools=(pool,)))

    assert bases(graph) == snapshot(["model<policy, fsdp4> -> model<reference, fsdp4>"])


@fl.program
def copied(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
    rollouts = ops.generate(policy, prompts)
    anchor = ops.logprobs(ops.snapshot(reference), rollouts)
    policy, stats = ops.update(
        policy, lambda new: ops.token_mean(ops.kl(new.logprobs, anchor), rollouts.mask), rollouts
    )
    return policy, stats


@fl.program
def sampled(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
    rollouts = ops.generate(reference, prompts)
    policy, stats = ops.update(
        policy, lambda new: -ops.token_mean(new.logprobs, rollouts.mask), rollouts
    )
    return policy, stats


@fl.program
def valued(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
    rollouts = ops.generate(policy, prompts)
    values = ops.values(reference, rollouts)
    policy, stats = ops.update(
        policy, lambda new: -ops.token_mean(new.logprobs * values, rollouts.mask), rollouts
    )
    return policy, stats


@pytest.mark.parametrize("roles", [["critic", "policy"], ["stranger", "policy"], ["policy"]])
def test_of_several_adapters_on_a_model_it_is_the_base_of_the_language_model(roles):
    graph = simplify(ppo.trace().graph, Cluster())

    shared = share_bases(graph, Cluster(bases={"reference": roles}))

    assert bases(shared) == ["model<policy> -> model<reference>"]


AWAY = Cluster((Pool("train", 1, ("policy",)), Pool("rest", 1, ("reference",))), bases=SHARED.bases)


@pytest.mark.parametrize(
    ("program", "cluster"),
    [
        (grpo, Cluster()),
        (grpo, AWAY),
        (grpo, Cluster(bases={"reference": ["nobody"]})),
        (ppo, Cluster(bases={"reference": ["critic"]})),
        (copied, SHARED),
        (sampled, SHARED),
        (valued, SHARED),
    ],
)
def test_another_model_or_place_or_use_is_left_alone(program, cluster):
    graph = simplify(program.trace().graph, cluster)

    assert text(share_bases(graph, cluster)) == text(graph)
