"""What compiling costs: programs, graphs of 1,000 nodes, searches on many GPUs, simulation.

    python benchmarks/compile_cost.py [--only graphs searches simulator]

Seconds are of the processor, so that the machine's other load doesn't count; those of graphs are
medians of three. What the reshard planner costs and moves: reshard_planner.py.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import flowrl as fl
from flowrl import ops
from flowrl.compiler.cluster import Cluster
from flowrl.config.planned import plan_run
from flowrl.config.programs import builtin_programs, load_program
from flowrl.config.run_file import load_run_file
from flowrl.ir.plan import Pool
from flowrl.ir.program import Program
from flowrl.report.options import settings
from flowrl.simulate import simulate

PLANS = Path(__file__).resolve().parents[1] / "examples" / "plan"
POOLS = Cluster(
    (
        Pool("train", 8, ("policy.train",)),
        Pool("rollout", 8, ("policy.generate", "reference")),
        Pool("data", 0, ("data", "reward")),
    )
)
LARGE = ("train.prompts_per_step=4096", "program.minibatch=1024")
"""A batch that 1,024 GPUs are worth."""


@fl.program
def chain(policy: fl.Model, prompts: fl.Prompts, *, length: int = 330) -> object:
    """Cheap ops, one after another."""
    _, rewards = ops.score("reward", ops.generate(policy, prompts, n=8))
    x = rewards
    for i in range(length):
        x = x * (1.5 + i) + rewards
    return policy, {"x": x.mean()}


@fl.program
def unrolled(
    policy: fl.Model, reference: fl.Model, prompts: fl.Prompts, *, times: int = 41
) -> object:
    """GRPO with its loss, written out so many times."""
    stats: dict[str, object] = {}
    for _ in range(times):
        rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=8))
        policy, stats = _grpo_step(policy, reference, rollouts, ops.group_advantage(rewards))
    return policy, stats


def _grpo_step(
    policy: fl.Model, reference: fl.Model, rollouts: fl.Rollouts, advantages: fl.Value
) -> tuple[fl.Model, dict[str, object]]:
    anchor = ops.logprobs(reference, rollouts)

    def loss(new: object) -> object:
        surrogate = ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages, clip=0.2)
        return ops.token_mean(surrogate + 0.1 * ops.kl(new.logprobs, anchor), rollouts.mask)

    return ops.update(policy, loss, rollouts)


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the processor's seconds of some work."""
    took = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        took.append(time.process_time() - start)
    return median(took)


def graphs() -> None:
    """Trace and lower each program, and graphs of 1,000 nodes, whose goal is a second."""
    print(f"{'graph':22} nodes      trace  lower: one pool   three pools")
    for program in (*map(load_program, sorted(builtin_programs())), chain, unrolled):
        _graph(program)


def _graph(program: Program) -> None:
    traced = fl.trace(program)
    nodes = sum(len(graph.nodes) for graph in traced.graph.nested())
    trace, one, three = (
        1e3 * seconds(work)
        for work in (lambda: fl.trace(program), traced.lower, lambda: traced.lower(POOLS))
    )
    print(f"{program.name:22} {nodes:5} {trace:7.1f} ms {one:13.1f} ms {three:10.1f} ms")


def searches() -> None:
    """Plan PPO's four models; the goals are 5 and 30 seconds."""
    print("\nPPO on      seconds  a step")
    for cluster in ("8x8xH100", "128x8xH100"):
        sets = (*settings(cluster, "256:600/2048"), *(LARGE if "128" in cluster else ()))
        start = time.process_time()
        _, plan = plan_run(load_run_file(str(PLANS / "ppo.toml"), sets))
        took = time.process_time() - start
        print(f"{cluster:11} {took:6.1f}s {plan.found.seconds:6.1f}s", flush=True)


def simulator() -> None:
    """Simulate 20 steps of PPO on 1,024 GPUs; the goal is 30 seconds."""
    sets = (*settings("128x8xH100", "256:600/4096"), *LARGE)
    traced, plan = plan_run(load_run_file(str(PLANS / "ppo.toml"), sets))
    start = time.process_time()
    done = simulate(plan, traced.inputs, 20)
    took = time.process_time() - start
    print(f"\n20 steps of {sum(done.workers.values())} workers on 1,024 GPUs: {took:.1f} s")
    print(f"a step: {median(done.steps):.1f} s simulated, {plan.found.seconds:.1f} s planned")


PARTS = {each.__name__: each for each in (graphs, searches, simulator)}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    for name in parser.parse_args().only:
        PARTS[name]()


if __name__ == "__main__":
    main()
