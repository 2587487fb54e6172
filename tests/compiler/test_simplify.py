"""What changes nothing goes, and nothing else."""

import attrs
import pytest
from inline_snapshot import external_file

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.simplify import simplify
from flowrl.ir.printer import text
from flowrl.ir.verify import verify
from programs.grpo import grpo
from programs.ppo import ppo
from tests.ir.source import STEP, traced


def simplified(body):
    """Return the graph of a program that goes on like this after sampling and scoring."""
    lines = body.strip("\n").splitlines()
    return verify(simplify(traced(STEP + "\n".join(f"    {line}" for line in lines)), Cluster()))


def counts(graph, *names):
    """Return how often each op stands in a graph and those inside it."""
    found = [node.op.name for inner in graph.nested() for node in inner.nodes]
    return {name: found.count(name) for name in names}


@pytest.mark.parametrize("program", [grpo, ppo], ids=["grpo", "ppo"])
def test_without_a_penalty_nothing_reads_the_reference(program):
    graph = verify(simplify(program.trace({"kl_coef": 0.0}).graph, Cluster()))

    read = {arg for node in graph.nodes for arg in node.args}
    assert graph.input("reference") not in read
    assert counts(graph, "logprobs", "kl", "mul") == {"logprobs": 0, "kl": 0, "mul": 0}


@pytest.mark.parametrize("program", [grpo, ppo], ids=["grpo", "ppo"])
def test_with_a_penalty_the_reference_is_read_once(program):
    graph = verify(simplify(program.trace().graph, Cluster()))

    assert counts(graph, "logprobs") == {"logprobs": 1}


def test_identities_go_where_the_type_stays():
    graph = simplified("""
same = ((0.0 + rewards - 0.0) * 1.0 / 1.0).mean()
wider = (rollouts.mask.float() * 0.0 + rewards).sum(mask=rollouts.mask)
return {"same": same, "wider": wider}""")

    assert counts(graph, "add", "sub", "mul", "div") == {"add": 1, "sub": 0, "mul": 1, "div": 0}


def test_a_coefficient_of_0_drops_its_term_whatever_that_is():
    graph = simplified("""
return {"x": (rewards + 0.0 * rewards.log()).mean()}""")

    assert counts(graph, "log", "add", "mul") == {"log": 0, "add": 0, "mul": 0}


def test_equal_nodes_are_merged():
    graph = simplified("""
a = ops.kl(rollouts.logprobs, ops.logprobs(reference, rollouts))
b = ops.kl(rollouts.logprobs, ops.logprobs(reference, rollouts))
return {"x": ops.token_mean(a * b, rollouts.mask)}""")

    assert counts(graph, "logprobs", "kl") == {"logprobs": 1, "kl": 1}


def test_draws_and_rewards_are_never_merged():
    graph = simplified("""
other, again = ops.score("reward", ops.generate(policy, prompts, n=4))
return {"x": rewards.mean() - again.mean()}""")

    assert counts(graph, "generate", "score") == {"generate": 2, "score": 2}


def test_a_reward_that_nobody_reads_is_still_given():
    graph = simplified("""
return {}""")
    silent = attrs.evolve(graph, outputs=())

    assert counts(simplify(silent, Cluster()), "generate", "score", "take") == {
        "generate": 1,
        "score": 1,
        "take": 0,
    }


def test_a_body_carries_in_only_the_fields_that_it_reads():
    graph = simplified("""
batch = ops.record(rollouts, rewards=rewards, unread=-rewards)
def body(total, mb):
    return total + mb.rewards.mean(), {}
total, stats = ops.scan(body, rewards.mean(), ops.minibatches(batch, sequences=8))
return {"total": total}""")

    (body,) = graph.nested()[1:]
    assert [name for name, _ in body.inputs] == ["carry", "mb.rewards"]


ELIDED = """
old = ops.logprobs(policy, rollouts{temperature})
def loss(new):
    return ops.token_mean(ops.clipped_surrogate(new.logprobs, old, rewards), rollouts.mask)
{before}
policy, stats = ops.update(policy, loss, rollouts)
return policy, stats"""


def test_old_logprobs_of_the_version_being_updated_are_read_off_its_update():
    graph = simplified(ELIDED.format(temperature="", before=""))

    assert counts(graph, "logprobs", "detach") == {"logprobs": 0, "detach": 1}


def test_old_logprobs_that_something_else_reads_are_computed_for_that():
    body = ELIDED.format(temperature="", before="mean = ops.token_mean(old, rollouts.mask)")
    graph = simplified(
        body.replace("stats", '{"mean": mean}').replace(', {"mean": mean} =', ", _ =")
    )

    assert counts(graph, "logprobs", "detach") == {"logprobs": 1, "detach": 1}


def test_old_logprobs_of_an_earlier_version_stay():
    before = "policy, _ = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, rollouts.mask), rollouts)"
    graph = simplified(ELIDED.format(temperature="", before=before))

    assert counts(graph, "logprobs", "detach") == {"logprobs": 1, "detach": 0}


def test_logprobs_of_the_engine_that_sampled_stay():
    graph = simplified(ELIDED.format(temperature="", before="old = rollouts.logprobs"))

    assert counts(graph, "detach") == {"detach": 0}


def test_old_logprobs_in_a_scan_over_minibatches_stay():
    graph = simplified("""
batch = ops.record(rollouts, old=ops.logprobs(policy, rollouts))
def body(policy, mb):
    loss = lambda new: ops.token_mean(ops.clipped_surrogate(new.logprobs, mb.old, 1.0), mb.mask)
    return ops.update(policy, loss, mb)
policy, stats = ops.scan(body, policy, ops.minibatches(batch, sequences=8))
return policy, stats""")

    assert counts(graph, "logprobs", "detach") == {"logprobs": 1, "detach": 0}


def test_grpo_without_a_penalty():
    graph = simplify(grpo.trace({"kl_coef": 0.0}).graph, Cluster())

    printed = text(graph, locations=False) + "\n"
    assert printed == external_file("grpo_without_penalty.ir", format=".txt")
