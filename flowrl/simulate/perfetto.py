"""A simulation as a trace for https://ui.perfetto.dev and chrome://tracing.

The format is Chrome's JSON trace events: a process a pool, a thread a worker, a slice for what it
does, a flow for what is sent.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flowrl.simulate.simulation import Simulation
from flowrl.simulate.world import Flow

Event = dict[str, Any]
MICROSECONDS = 1e6


def write_trace(simulation: Simulation, file: Path) -> None:
    """Write the trace of a simulation, an event a line."""
    with file.open("w") as out:
        out.write('{"traceEvents": [\n')
        for number, event in enumerate(events(simulation)):
            out.write(",\n" * bool(number) + json.dumps(event))
        out.write("\n]}\n")


def events(simulation: Simulation) -> Iterator[Event]:
    """Yield the trace events of a simulation; times are in microseconds."""
    process = {name: number for number, name in enumerate(simulation.workers)}
    for pool, workers in simulation.workers.items():
        yield _named("process_name", f"pool {pool}", process[pool])
        for worker in range(workers):
            yield _named("thread_name", f"worker {worker}", process[pool], worker)
    for span in simulation.spans:
        for pool, worker in span.workers:
            yield {
                **_slice(span.name, span.start, span.end, process[pool], worker),
                "args": {"step": span.step},
            }
    for number, flow in enumerate(simulation.flows):
        yield from _sent(flow, number, process)
    for at, (pool, worker) in simulation.deaths:
        place = {"pid": process[pool], "tid": worker}
        yield {"ph": "i", "name": "died", "ts": at * MICROSECONDS, "s": "p", **place}


def _named(what: str, name: str, process: int, thread: int = 0) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _slice(name: str, start: float, end: float, process: int, thread: int) -> Event:
    times = {"ts": start * MICROSECONDS, "dur": (end - start) * MICROSECONDS}
    return {"ph": "X", "name": name, **times, "pid": process, "tid": thread}


def _sent(flow: Flow, number: int, process: dict[str, int]) -> Iterator[Event]:
    """Yield a flow; its ends bind to slices, which are empty."""
    ends = [
        ("s", "send", flow.start, *flow.source, {}),
        ("f", "receive", flow.end, *flow.target, {"bp": "e"}),
    ]
    for kind, what, at, pool, worker, more in ends:
        own = _slice(f"{what} {flow.name}", at, at, process[pool], worker)
        yield own
        place = {name: own[name] for name in ("ts", "pid", "tid")}
        yield {"ph": kind, "name": flow.name, "cat": "sent", "id": number, **place, **more}
