"""What ops take, by their printed names: in this process, and of several workers together."""

import time

import pytest

import flowrl as fl
from flowrl import ops
from flowrl.errors import EngineError
from flowrl.ops.model import Update
from flowrl.ops.names import named_nodes
from flowrl.runtime.measures import Measured, Measures, by_name
from programs.grpo import grpo
from programs.ppo import ppo
from tests.runtime import steps


@fl.op("f32[prompt, sample] -> f32[prompt, sample]", per="sample")
def slow(x):
    time.sleep(0.05)
    return x


@fl.program
def with_a_slow_op(policy: fl.Model, prompts: fl.Prompts):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))
    advantages = slow(rewards)
    loss = lambda new: ops.token_mean(-advantages * new.logprobs, rollouts.mask)
    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats


@pytest.fixture
def stepped(model_folder, tokenizer):
    """Return a function that runs steps of a program; it returns its graph and the last step."""

    def stepped(program, count=1, **hyperparameters):
        traced = fl.trace(program, **hyperparameters)
        here = steps.executor(traced, steps.roles(traced, model_folder), tokenizer)
        carry, cursors = here.first(), steps.cursors(traced, tokenizer)
        for number in range(count):
            done = here.step(carry, cursors, number)
            carry = done.carry
        return here.graph, done

    return stepped


def update_of(graph):
    return next(node for _, node in named_nodes(graph) if isinstance(node.op, Update))


def test_every_op_of_a_step_is_measured_under_its_name(stepped):
    graph, done = stepped(grpo, samples=3, kl_coef=0.1)

    assert list(done.ops) == [name for name, _ in named_nodes(graph)]
    assert all(its.times == 1 and its.seconds > 0 for its in done.ops.values())
    assert sum(its.seconds for its in done.ops.values()) <= done.elapsed


def test_ops_of_a_loop_are_counted_and_the_loop_is_what_is_inside_it(stepped):
    _, done = stepped(ppo, minibatch=2, epochs=3)
    inside = {name: its.times for name, its in done.ops.items() if "/" in name}
    loops = {name.partition("/")[0] for name in inside}

    assert set(inside.values()) == {6}, "4 samples in minibatches of 2, three times"
    assert loops
    assert not loops & set(done.ops)


def test_each_step_is_measured_by_itself(stepped):
    _, done = stepped(grpo, count=3, samples=2)

    assert {its.times for its in done.ops.values()} == {1}


def test_the_seconds_of_a_users_op_are_its_own(stepped):
    graph, done = stepped(with_a_slow_op)
    took = {node.op.name: done.ops[name].seconds for name, node in named_nodes(graph)}

    assert took["slow"] >= 0.05


def test_memory_without_a_gpu_is_the_most_that_the_process_has_used(stepped):
    _, done = stepped(grpo, samples=2)
    memory = [its.memory for its in done.ops.values()]

    assert memory == sorted(memory)
    assert memory[0] > 10 * 2**20, "torch alone takes more"


def test_what_fails_is_not_measured():
    graph = fl.trace(grpo).lower().graph
    measures = Measures(graph)

    with pytest.raises(EngineError), measures.of(update_of(graph)):
        raise EngineError("out of memory")

    assert measures.by_name() == {}


def test_nodes_of_another_graph_are_not_measured():
    measures = Measures(fl.trace(grpo).lower().graph)

    with measures.of(update_of(fl.trace(grpo).lower().graph)):
        pass

    assert measures.by_name() == {}


def test_the_slower_of_a_pools_workers_counts_with_the_bytes_of_all():
    ranks = [("train", {1: Measured(2, 3.0, 10, 7)}), ("train", {1: Measured(2, 4.0, 20, 5)})]

    assert by_name(["%0", "%1"], ranks) == {"%1": Measured(2, 4.0, 30, 7)}


def test_a_transfer_takes_what_both_of_its_ends_take():
    sender, receiver = Measures(), Measures()

    sender.sent([0, 2], 0.5)
    receiver.received([0, 2], 1.0, [8, 16])
    found = by_name(["%0", "%1", "%2"], [("a", sender.found), ("b", receiver.found)])

    assert found == {"%0": Measured(1, 0.75, 8), "%2": Measured(1, 0.75, 16)}


def test_two_branches_whose_ops_share_a_name_are_added():
    found = by_name(["%2/%0", "%2/%0"], [("main", {0: Measured(1, 1.0), 1: Measured(2, 0.5)})])

    assert found == {"%2/%0": Measured(2, 1.5)}
