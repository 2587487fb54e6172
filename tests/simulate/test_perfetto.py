"""Traces as Perfetto reads them: slices of a row never cross, and what is sent arrives."""

import json

import pytest

from flowrl.compiler.search import Constraints
from flowrl.compiler.target import Lengths
from flowrl.compiler.tasks import Seat
from flowrl.simulate import Failures
from flowrl.simulate.perfetto import write_trace

APART = Constraints(apart=(frozenset({Seat("policy", "generate"), Seat("policy", "train")}),))


@pytest.fixture
def trace(case, tmp_path):
    """Return a simulation in which GPUs fail, and the events of its trace."""
    placed = case(
        "grpo",
        "2x8xH100",
        constraints=APART,
        response_tokens=Lengths.of({"mean": 600, "max": 2048}),
    )
    done = placed.simulate(10, failures=Failures(mean_seconds=600, restart=5))
    write_trace(done, tmp_path / "trace.json")
    return done, json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_a_row_is_a_worker_of_a_pool(trace):
    done, events = trace

    pools = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    rows = [(pools[e["pid"]], e["args"]["name"]) for e in events if e["name"] == "thread_name"]

    assert rows == [
        (f"pool {pool}", f"worker {i}")
        for pool, count in done.workers.items()
        for i in range(count)
    ]


def test_slices_of_a_row_follow_one_another_or_lie_inside(trace):
    _, events = trace

    rows = {}
    for event in events:
        if event["ph"] == "X":
            span = event["ts"], -event["dur"], event["ts"] + event["dur"]
            rows.setdefault((event["pid"], event["tid"]), []).append(span)

    for spans in rows.values():
        around = []
        for start, _, end in sorted(spans):
            while around and around[-1] <= start + 1e-3:
                around.pop()
            assert not around or end <= around[-1] + 1e-3
            around.append(end)


def test_what_is_sent_arrives_later_in_another_pool(trace):
    _, events = trace

    sent = {e["id"]: e for e in events if e["ph"] == "s"}
    received = {e["id"]: e for e in events if e["ph"] == "f"}

    assert sent.keys() == received.keys()
    assert {e["name"] for e in sent.values()} == {"data", "weights"}
    for number, start in sent.items():
        assert start["ts"] <= received[number]["ts"]
        assert start["pid"] != received[number]["pid"]


def test_deaths_are_marked(trace):
    done, events = trace

    marked = [event["ts"] / 1e6 for event in events if event["ph"] == "i"]

    assert len(marked) == len(done.deaths) > 0
    assert marked == pytest.approx([at for at, _ in done.deaths])
