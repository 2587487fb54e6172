"""What goes wrong on a worker is told with op, pool, worker and source line."""

import re

import pytest
import ray
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.data.record import RowError
from flowrl.errors import EngineError, FlowrlError
from flowrl.runtime.host import Scores
from flowrl.runtime.pools.pools import PoolSize, RaySpec, started
from programs.ppo import ppo
from tests.runtime import steps
from tests.runtime.ray import faults, jobs
from tests.runtime.ray.conftest import POOLS as TWO_SAMPLE

POOLS = (
    Pool("train", 0, ("policy.train",)),
    Pool("rollout", 0, ("policy.generate",)),
    Pool("data", 0, ("data", "reward")),
)


@fl.op("f32[prompt, sample] -> f32[prompt, sample]", per="batch")
def halves(rewards):
    return rewards[: len(rewards) // 2]


@fl.op("f32[prompt, sample] -> f32[prompt, sample]", per="batch")
def broken(rewards):
    raise KeyError("x7")


def program_of(function):
    @fl.program
    def program(policy: fl.Model, prompts: fl.Prompts):
        rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))
        advantages = function(rewards)
        policy, stats = ops.update(
            policy,
            lambda new: ops.token_mean(
                ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages, clip=0.2),
                rollouts.mask,
            ),
            rollouts,
        )
        return policy, stats

    return program


def overflowing(rewards):
    """Meet an infinite number in the last sample of the third prompt."""
    return ops.leave_one_out(rewards / (rewards - 6.0))


class Numbers:
    """Rewards 1 to 8, of two samples a prompt."""

    columns = None
    first = 1.0

    def score(self, plan):
        numbers = [self.first, *map(float, range(2, 9))]
        return lambda functions, rows, completions, samples, step, given: Scores([numbers], {})

    def close(self):
        pass


class Dropping(Numbers):
    """The same, but the first sample has none: its group is dropped."""

    first = None


class Silent:
    """Rewards that fail in a way that no one foresaw."""

    columns = None

    def score(self, plan):
        def score(functions, rows, completions, samples, step, given):
            raise ValueError("no score today")

        return score

    def close(self):
        pass


@pytest.fixture
def error_of(pools, model_folder, tokenizer):
    """Run a step of a program that fails; return the error's text."""

    def error_of(program, **changes):
        traced = fl.trace(program)
        lowered = traced.lower(Cluster(POOLS), steps.roles(traced, model_folder))
        there = jobs.executor(lowered, tokenizer, pools(train=1, rollout=2, data=1), **changes)
        with pytest.raises(FlowrlError) as raised:
            there.step(there.first(), there.cursors(), 0)
        return re.sub(r":\d+\b|\d+ \|", ":N", str(raised.value))

    return error_of


def test_an_op_that_returns_what_it_must_not_is_named_with_its_worker(error_of):
    assert error_of(program_of(halves)) == snapshot("""\
halves: the function must return 8 elements for f32[prompt'2, sample'2]; got a tensor of shape (4,)
  test_failures.py:N
   :N         advantages = function(rewards)
                             ^^^^^^^^^^^^^^^^^
  on worker 0 of pool `data` (pid 1 on here)
help: with per='batch' it returns an element for each of its result type\
""")


def test_an_op_that_raises_is_named_with_its_worker(error_of):
    assert error_of(program_of(broken)) == snapshot("""\
broken: the function raised KeyError: 'x7'
  test_failures.py:N
   :N         advantages = function(rewards)
                             ^^^^^^^^^^^^^^^^^
  on worker 0 of pool `data` (pid 1 on here)
help: it was called with tensors of shapes (8,), per='batch'\
""")


def test_a_reward_that_is_not_finite_is_told_by_row_and_sample(error_of):
    assert error_of(program_of(overflowing), rewards=Numbers) == snapshot("""\
leave_one_out: the function refused: rewards must be finite numbers; sample 5, number 1 of group 2, has inf (1 of 8 samples are not finite)
  texts:N (row 2), sample 1
  test_failures.py:N
   :N     return ops.leave_one_out(rewards / (rewards - 6.0))
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  on worker 0 of pool `data` (pid 1 on here)
help: look for 0 / 0, the log of 0 or an overflow in what this sample gives; `ops.usable(x)` says where x is finite\
""")


@fl.program
def whitened(policy: fl.Model, prompts: fl.Prompts):
    """Meet the same in an op that lies where the tokens are."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))
    earned = ops.reinforce_plus_plus_baseline(rewards / (rewards - 6.0), rollouts.mask)
    return {"largest": earned.max(mask=rollouts.mask)}


def test_a_row_is_told_from_another_pool_and_behind_groups_that_were_dropped(error_of):
    text = error_of(whitened, rewards=Dropping, drop_failed=True)

    assert "sample 3, number 1 of group 1, has inf (1 of 6" in text
    assert "\n  texts:N (row 2), sample 1\n" in text
    assert "  on worker 0 of pool `rollout`" in text


def test_rewards_that_raise_are_named_with_their_worker(error_of):
    assert error_of(program_of(halves), rewards=Silent) == snapshot("""\
score: ValueError: no score today
  test_failures.py:N
   :N         rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))
                                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  on worker 0 of pool `data` (pid 1 on here)
help: raised at test_failures.py:N\
""")


def test_a_gpu_without_memory_is_told_with_the_op_and_its_worker(folder, faulty):
    faulty(faults.full)

    with pytest.raises(EngineError) as raised:
        folder.run("grpo", added=TWO_SAMPLE)

    text = re.sub(r":\d+\b|\d+ \|", ":N", str(raised.value))
    assert re.sub(r"worker \d", "worker N", text) == snapshot("""\
generate: CUDA out of memory.
  grpo.py:N
   :N     rollouts = ops.generate(policy, prompts, n=samples)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  on worker N of pool `rollout` (pid 1 on here)
help: lower `tokens_per_microbatch`, set `checkpointing`, or have vLLM reserve less (`gpu_memory_utilization`); `flowrl plan` shows who takes what of a GPU\
""")


def test_the_first_failure_is_told_not_those_that_follow_from_it(error_of):
    text = error_of(program_of(halves), rewards=Silent)

    assert "no score today" in text
    assert "halves" not in text


def test_errors_cross_processes_whole():
    error = RowError("wrong type", "expected text; got 3", where="a.jsonl:7")

    (found,) = ray.cloudpickle.loads(ray.cloudpickle.dumps([error]))

    assert type(found) is RowError
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_more_gpus_than_there_are_is_told_by_resource_and_pool(crew):
    with (
        pytest.raises(EngineError) as raised,
        started(RaySpec((PoolSize("train", 1, gpus=8), PoolSize("rollout", 4, gpus=4, cpus=2)))),
    ):
        pass

    assert str(raised.value) == snapshot("""\
12 GPUs are wanted, there are 8; 8.5 CPUs are wanted, there are 4
  pool `train`: 1 x (0.5 CPUs, 8 GPUs)
  pool `rollout`: 4 x (2 CPUs, 1 GPUs)
help: make the pools of [cluster] smaller, or put several roles in one\
""")


def test_a_worker_that_no_machine_has_room_for_leaves_nothing_behind(crew):
    @ray.remote(num_gpus=7)
    class Holder:
        def held(self):
            return True

    holder = Holder.remote()
    assert ray.get(holder.held.remote())

    with pytest.raises(EngineError) as raised, started(RaySpec((PoolSize("train", gpus=4),))):
        pass

    ray.kill(holder)
    assert str(raised.value) == snapshot("""\
4 GPUs are wanted, others leave 1
  pool `train`: 1 x (0.5 CPUs, 4 GPUs)
help: make the pools of [cluster] smaller, or put several roles in one\
""")
    groups = ray.util.placement_group_table().values()
    assert [g["state"] for g in groups if g["state"] not in ("REMOVED", "CREATED")] == []


def test_an_address_at_which_no_ray_answers():
    from flowrl.runtime.pools.pools import _check_reachable

    with pytest.raises(EngineError) as raised:
        _check_reachable("127.0.0.1:9")

    assert str(raised.value) == snapshot("""\
no Ray answers at 127.0.0.1:9: [Errno 111] Connection refused
help: start one there with `ray start --head`, or leave `cluster.address` out\
""")


def test_a_model_that_is_scored_away_from_home_is_refused(pools, model_folder, tokenizer):
    cluster = Cluster((Pool("train", 0, ("critic.train",)), Pool("rest", 0, ("critic.score",))))
    traced = fl.trace(ppo)
    lowered = traced.lower(cluster, steps.roles(traced, model_folder))

    with pytest.raises(EngineError) as raised:
        jobs.executor(lowered, tokenizer, pools(train=1, rest=1))

    assert re.sub(r":\d+\b|\d+ \|", ":N", str(raised.value)) == snapshot("""\
values: `critic` lives in pool `train`; in pool `rest` it can only be sampled from
  ppo.py:N
   :N     values, anchor = ops.values(critic, rollouts), ops.logprobs(reference, rollouts)
                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: let the pool that claims `critic.train` claim `critic.score` too\
""")
