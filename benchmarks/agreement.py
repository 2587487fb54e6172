"""What it takes ranks to agree on what they do next, against a collective that could tell less.

    python benchmarks/agreement.py [--ranks 2 4 8]

The collective is an all-gather of two numbers over gloo: a hash of what a rank is about to do.
"""

import argparse
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.multiprocessing import spawn

from flowrl.runtime.ranks.agreement import Agreement

TURNS, PATIENCE = 300, 60.0


def main() -> None:
    """Print milliseconds for each number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    for count in parser.parse_args().ranks:
        master = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        spawn(measure, (count, master.port), nprocs=count)


def measure(rank: int, count: int, port: int) -> None:
    """Agree many times, as one of `count` ranks; the first prints what it took."""
    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=PATIENCE))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=count)
    agreement = Agreement(store, rank, count, PATIENCE)
    own = torch.zeros(2, dtype=torch.int64)
    room = [torch.zeros_like(own) for _ in range(count)]
    agreed = each(lambda: agreement.reach("`update` (grpo.py:14)"))
    gathered = each(lambda: dist.all_gather(room, own))
    if rank == 0:
        print(f"{count} ranks: {agreed:.2f} ms to agree, {gathered:.2f} ms to gather", flush=True)
    dist.destroy_process_group()


def each(act: Callable[[], object]) -> float:
    """Return the milliseconds that an act of all ranks takes."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(TURNS):
        act()
    return 1e3 * (time.perf_counter() - start) / TURNS


if __name__ == "__main__":
    main()
