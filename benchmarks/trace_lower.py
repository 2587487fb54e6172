"""Time of tracing and lowering each program, in milliseconds: median of 50, in one process.

Run it by `python benchmarks/trace_lower.py`.
"""

import statistics
import time
from collections.abc import Callable

from flowrl.config.programs import builtin_programs, load_program
from flowrl.ir.program import Program
from flowrl.stages import trace

REPEATS = 50


def milliseconds(work: Callable[[], object]) -> float:
    """Return the median time of `work`."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def row(name: str, program: Program) -> str:
    """Return one line of the table."""
    traced = trace(program)
    nodes = sum(len(graph.nodes) for graph in traced.graph.nested())
    times = milliseconds(lambda: trace(program)), milliseconds(traced.lower)
    return f"{name:12} {nodes:5} {times[0]:8.2f} {times[1]:8.2f} {sum(times):8.2f}"


def main() -> None:
    """Print the table."""
    print(f"{'program':12} {'nodes':>5} {'trace':>8} {'lower':>8} {'both':>8}")
    for name in sorted(builtin_programs()):
        print(row(name, load_program(name)))


if __name__ == "__main__":
    main()
