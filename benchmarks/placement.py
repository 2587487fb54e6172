"""Where the best placement of PPO stops sharing all GPUs, against what HybridFlow reports.

    python benchmarks/placement.py [--models 7b 13b ...] [--nodes 1 2 4 8 12 16]
    python benchmarks/placement.py --times

The setting of HybridFlow's section 8 (Sheng et al. 2024, arXiv:2409.19256): nodes of 8 A100-80G
with 200 Gbps each; policy, critic, reference and reward model of one size, or a 13B policy with a
70B critic; prompts and responses of 1,024 tokens, 1,024 prompts a step, one epoch of 8 minibatches,
optimizer states not offloaded. Each row searches four times: all models together (colocated);
policy and reference apart from critic and reward model (split); every model apart (standalone); and
without a constraint. Seconds a step are predicted; in brackets, the GPUs of each pool. The last
column says who shares a pool: G generates, P trains the policy, C trains the critic, R is the
reference, W the reward model. Microbatches are of one sequence unless another number of tokens is
given: pipelines are short of microbatches otherwise.

With `--times`, instead, what a search takes on 64 and on 1,024 GPUs: seconds of one core, and nodes
of its tree that were opened, that didn't fit, and that were bounded only.
"""

import argparse
import time
from collections.abc import Mapping, Sequence

import attrs

from flowrl.compiler.cost.memory import Residency
from flowrl.compiler.hardware import Machines
from flowrl.compiler.search import Constraints, Found, ModelCosts, best_placement
from flowrl.compiler.shapes import known_shape
from flowrl.compiler.target import Lengths, Settings, Target, Workload
from flowrl.compiler.tasks import Seat, Task

MODELS = {
    "7b": ("llama-2-7b", "llama-2-7b"),
    "13b": ("llama-2-13b", "llama-2-13b"),
    "34b": ("codellama-34b", "codellama-34b"),
    "70b": ("llama-2-70b", "llama-2-70b"),
    "13b+70b": ("llama-2-13b", "llama-2-70b"),
}
"""Policy and reference; critic and reward model."""

TOKENS, PROMPTS, MINIBATCHES = Lengths.of(1024), 1024, 8
NODE_NETWORK = 25e9
"""Bytes a second of a whole node: 200 Gbps (HybridFlow, section 8.1)."""


def task(name: str, kind: str, seat: str, after: tuple[int, ...] = (), times: int = 1) -> Task:
    """Return a task on the rows of a step, or of each minibatch."""
    role, use = seat.split(".")
    return Task(name, kind, Seat(role, use), PROMPTS / times, TOKENS, TOKENS, times, after=after)


PPO = (
    task("%0", "generate", "policy.generate"),
    task("%1", "rewards", "reward.score", (0,)),
    task("%2", "values", "critic.score", (0,)),
    task("%3", "logprobs", "reference.score", (0,)),
    task("%4/%0", "update", "policy.train", (1, 2, 3), MINIBATCHES),
    task("%4/%1", "update", "critic.train", (1, 2, 3), MINIBATCHES),
)

POLICY, CRITIC = Seat("policy", "train"), Seat("critic", "train")
GENERATE = Seat("policy", "generate")
REFERENCE, REWARD = Seat("reference", "score"), Seat("reward", "score")
LETTERS = {GENERATE: "G", POLICY: "P", CRITIC: "C", REFERENCE: "R", REWARD: "W"}
ACTING, JUDGING = {POLICY, GENERATE, REFERENCE}, {CRITIC, REWARD}

RESIDENT: Mapping[Seat, Residency] = {POLICY: "resident", CRITIC: "resident"}
LARGE = ("8x8xA100-80G", "8x8xH100", "128x8xH100", "64x8xH100 + 64x8xA100-80G")

FORMS: Mapping[str, Constraints] = {
    "colocated": Constraints(together=(frozenset(ACTING | JUDGING),), residencies=RESIDENT),
    "split": Constraints(
        together=(frozenset(ACTING), frozenset(JUDGING)),
        apart=(frozenset({POLICY, CRITIC}),),
        residencies=RESIDENT,
    ),
    "standalone": Constraints(
        together=(frozenset({POLICY, GENERATE}),),
        apart=(frozenset({POLICY, CRITIC, REFERENCE, REWARD}),),
        residencies=RESIDENT,
    ),
    "best": Constraints(residencies=RESIDENT),
}


def target(model: str, nodes: int, microbatch_tokens: int) -> Target:
    """Return HybridFlow's machines and models."""
    acting, judging = MODELS[model]
    shapes = {
        "policy": known_shape(acting),
        "reference": known_shape(acting),
        "critic": known_shape(judging, head="value"),
        "reward": known_shape(judging, head="reward"),
    }
    settings = Settings(checkpointing=True, microbatch_tokens=microbatch_tokens)
    workload = Workload(
        prompts=PROMPTS, prompt_tokens=TOKENS, response_tokens=TOKENS, default=settings
    )
    node = attrs.evolve(Machines.parse("8xA100-80G").nodes[0], network_bytes_per_s=NODE_NETWORK)
    return Target(Machines((node,) * nodes), shapes, workload)


def cell(found: Found | None) -> str:
    """Return seconds a step and the pools' sizes."""
    if found is None:
        return "doesn't fit"
    sizes = "+".join(str(len(pool.ranks)) for pool in found.pools)
    return f"{found.seconds:.1f} ({sizes})"


def shared(found: Found | None) -> str:
    """Return who shares a pool, as letters."""
    if found is None:
        return ""
    return " | ".join("".join(LETTERS[seat] for seat in pool.seats) for pool in found.pools)


def print_forms(models: Sequence[str], all_nodes: Sequence[int], microbatch_tokens: int) -> None:
    """Print the seconds a step of each form."""
    print(f"{'model':7} {'GPUs':>4} " + " ".join(f"{form:>20}" for form in FORMS) + "  shared by")
    for model in models:
        for nodes in all_nodes:
            costs = ModelCosts(target(model, nodes, microbatch_tokens), PPO)
            found = [best_placement(PPO, costs, form) for form in FORMS.values()]
            row = " ".join(f"{cell(its):>20}" for its in found)
            print(f"{model:7} {8 * nodes:4} {row}  {shared(found[-1])}", flush=True)


def print_times(models: Sequence[str], microbatch_tokens: int) -> None:
    """Print what searches take, without a constraint."""
    print(f"{'model':7} {'machines':28} {'seconds':>7} {'opened':>7} {'refused':>7} {'bounded':>7}")
    for model in models:
        for text in LARGE:
            machines = Machines.parse(text)
            of = attrs.evolve(target(model, 1, microbatch_tokens), machines=machines)
            start = time.process_time()
            found = best_placement(PPO, ModelCosts(of, PPO))
            seconds = time.process_time() - start
            assert found, "all of these fit"
            effort = f"{found.effort.visited:7} {found.effort.refused:7} {found.effort.left:7}"
            print(f"{model:7} {text:28} {seconds:7.1f} {effort}", flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--nodes", nargs="+", type=int, default=[1, 2, 4, 8, 12, 16])
    parser.add_argument("--microbatch-tokens", type=int, default=2048)
    parser.add_argument("--times", action="store_true")
    args = parser.parse_args()
    if args.times:
        print_times(args.models, args.microbatch_tokens)
    else:
        print_forms(args.models, args.nodes, args.microbatch_tokens)


if __name__ == "__main__":
    main()
