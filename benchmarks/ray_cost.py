"""What a step costs on Ray: against one process, and by how tensors move between workers.

    python benchmarks/ray_cost.py [--repeats N]

All that is compared is measured in turns in one run, and reported as medians: the machine's
other load falls on all alike.
"""

import argparse
import logging
import os
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import attrs
import ray
import torch
from ray.experimental.collective import create_collective_group

import flowrl as fl
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.functional.ragged import Ragged
from flowrl.runtime.executor import LocalExecutor
from flowrl.runtime.host import Host
from flowrl.runtime.pools.channels import Bytes
from flowrl.runtime.pools.job import Job
from flowrl.runtime.pools.pools import Pools, PoolSize, RaySpec, started
from flowrl.runtime.pools.ray_executor import RayExecutor
from flowrl.runtime.rows.rows import PromptBatch, Row

SIZES = (1 << 10, 1 << 17, 1 << 20, 10 << 20, 100 << 20)
ZERO_COPY = {"env_vars": {"RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}}


@attrs.define
class Eight:
    """Eight prompts of sixteen tokens, again and again: data as a worker opens them."""

    rows: int = 8
    position: int = 0

    def __call__(self, columns: object) -> "dict[str, Eight]":
        """Open it."""
        return {"prompts": self}

    def cursor(self) -> "Eight":
        """Return its start."""
        return Eight()

    def sentence(self) -> str:
        """Describe it."""
        return "eight prompts"

    def take(self, count: int) -> PromptBatch:
        """Return them."""
        self.position += count
        ids = Ragged.of_rows([range(16)] * count, torch.int64)
        return PromptBatch(tuple(Row(i, f"row {i}", "") for i in range(count)), ids)


class NoRewards:
    """No rewards."""

    columns = None

    def score(self, plan: str) -> None:
        """Score nothing."""

    def close(self) -> None:
        """End nothing."""


def chain(nodes: int) -> fl.Traced:
    """Return a program of so many cheap nodes, one after another."""

    @fl.program
    def program(prompts: fl.Prompts, level: fl.Carry = fl.Carry(0.0)):  # noqa: ANN202
        x = prompts.context.float()
        for _ in range(nodes - 3):
            x = x * 0.5
        mean = x.max()
        return mean, {"mean": mean + level}

    return fl.trace(program)


def step_of(executor: Any, cursors: Any) -> Callable[[], None]:
    """Return a function that runs the next step."""
    state = {"carry": executor.first(), "step": 0}

    def step() -> None:
        state["carry"] = executor.step(state["carry"], cursors, state["step"]).carry
        state["step"] += 1

    return step


def steps(nodes: int, pools: Pools) -> dict[str, Callable[[], None]]:
    """Return a step of a chain in this process and on Ray."""
    traced = chain(nodes)
    here, there = traced.lower(), traced.lower(Cluster((Pool("main"),)))
    local = LocalExecutor(here.graph, traced.inputs, Host(), 8)
    job = Job(
        name="run",
        plan=there.plan,
        source=there.graph,
        inputs=traced.inputs,
        roles={},
        tokenizers={},
        data=Eight(),
        rewards=NoRewards,
    )
    remote = RayExecutor(job, pools)
    remote.open_rewards()
    remote.open_data()
    remote.load(8)
    return {
        "local": step_of(local, {"prompts": Eight()}),
        "ray": step_of(remote, remote.cursors()),
    }


@ray.remote(num_cpus=0.1, enable_tensor_transport=True)
class Peer:
    """Sends and receives a tensor, by each transport."""

    def make(self, size: int) -> None:
        """Have a tensor of so many bytes."""
        self.tensor = torch.zeros(size // 4)

    def put(self, packed: bool) -> list[Any]:
        """Send it as an object of this worker's, whose address is returned."""
        return [ray.put(Bytes.of(self.tensor) if packed else self.tensor)]

    def get(self, box: list[Any]) -> int:
        """Receive it."""
        found = ray.get(box[0])
        tensor: torch.Tensor = found.tensor() if isinstance(found, Bytes) else found
        return tensor.numel()

    @ray.method(tensor_transport="gloo")  # type: ignore[untyped-decorator]
    def direct(self) -> torch.Tensor:
        """Send it directly."""
        return self.tensor

    def receive(self, tensor: torch.Tensor) -> int:
        """Receive it directly."""
        return tensor.numel()


def transports() -> Iterator[tuple[str, Callable[[int], Callable[[], None]]]]:
    """Yield a function of the size for each transport, which returns what moves a tensor."""
    pair = [Peer.remote() for _ in range(2)]
    create_collective_group(pair, backend="torch_gloo")
    shared = [Peer.options(runtime_env=ZERO_COPY).remote() for _ in range(2)]
    yield "tensors", moved(*pair, lambda a, b: b.get.remote(a.put.remote(False)))
    yield "bytes (flowrl's)", moved(*pair, lambda a, b: b.get.remote(a.put.remote(True)))
    yield "shared, read only", moved(*shared, lambda a, b: b.get.remote(a.put.remote(False)))
    yield "direct (gloo)", moved(*pair, lambda a, b: b.receive.remote(a.direct.remote()))


def moved(a: Any, b: Any, send: Callable[[Any, Any], Any]) -> Callable[[int], Callable[[], None]]:
    """Return what makes a tensor of a size and returns what moves it from a to b."""

    def of_size(size: int) -> Callable[[], None]:
        ray.get(a.make.remote(size))

        def move() -> None:
            assert ray.get(send(a, b)) == size // 4

        return move

    return of_size


def medians(compared: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Return the median milliseconds of each, measured in turns."""
    spent: dict[str, list[float]] = {name: [] for name in compared}
    for turn in range(repeats + 3):
        for name, run in compared.items():
            start = time.perf_counter()
            run()
            if turn >= 3:
                spent[name].append(1000 * (time.perf_counter() - start))
    return {name: median(times) for name, times in spent.items()}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    ray.init("local", num_cpus=4, include_dashboard=False, **quiet)
    with started(RaySpec((PoolSize("main"),))) as pools:
        print("| nodes | local, ms | ray, ms | difference |\n| --- | --- | --- | --- |")
        for nodes in (10, 50):
            found = medians(steps(nodes, pools), repeats)
            local, remote = found["local"], found["ray"]
            print(f"| {nodes} | {local:.1f} | {remote:.1f} | {remote - local:.1f} |", flush=True)
    known = dict(transports())
    print(f"\n| bytes | {' | '.join(f'{name}, ms' for name in known)} |")
    print("| --- " * (1 + len(known)) + "|")
    for size in SIZES:
        found = medians({name: of(size) for name, of in known.items()}, min(repeats, 10))
        print(f"| {size:,} | {' | '.join(f'{x:.1f}' for x in found.values())} |", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
