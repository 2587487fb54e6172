"""Pools on two nodes of emulated GPUs: where they lie, what is refused, and what is left."""

import json
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.runtime.pools.pools import by_machine, spread

POOLS = """
[engines.policy.train]
shard = "fsdp2"
[cluster]
executor = "ray"
num_gpus = 8
[cluster.pools.train]
roles = ["policy.train", "reference"]
gpus = 3
workers = 3
[cluster.pools.rollout]
roles = ["policy.generate"]
gpus = 1
"""


@pytest.fixture
def found(folder):
    """Return what a process on two nodes says of itself."""
    path = folder.write("grpo", POOLS)
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.ray.two_nodes", path],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_ranks_on_two_nodes_train_and_leave_nothing_and_what_does_not_fit_is_refused(found, folder):
    assert found["told"]["more GPUs than there are"] == snapshot("""\
12 GPUs are wanted, there are 8
  pool `train`: 12 x (0.1 CPUs, 1 GPUs)
help: make the pools of [cluster] smaller, or put several roles in one\
""")
    assert found["told"]["more on a machine than it has"] == snapshot("""\
no machine of the cluster has room for a worker of `train` (1 x (0.5 CPUs, 5 GPUs))
help: a worker needs its GPU and its CPUs on one machine: look at `cpus`\
""")
    assert found["told"]["more than others leave"] == snapshot("""\
6 GPUs are wanted, others leave 4
  pool `train`: 6 x (0.1 CPUs, 1 GPUs)
help: make the pools of [cluster] smaller, or put several roles in one\
""")

    assert found["told"]["replicas on two machines"] == snapshot(
        [
            "pool `wide` has replicas on several machines, 1 of 2: what their workers add up in each layer goes over the network; give it GPUs in multiples of 3 a machine"
        ]
    )
    nodes = [node for node, *_ in found["seen"]["train"]]
    assert set(nodes) == set(found["nodes"])
    assert nodes in ([nodes[0]] * 2 + [nodes[2]], [nodes[0]] + [nodes[2]] * 2)
    gpus = [its for pool in ("train", "rollout") for _, its, _ in found["seen"][pool]]
    assert all(len(each.split(",")) == 1 for each in gpus)
    assert [record["step"] for record in folder.records()] == [1, 2, 3]
    assert found["left"] == [[], False]


PLACES = st.lists(st.sampled_from("abc"), max_size=12)


@given(PLACES, st.integers(1, 4))
def test_neighbours_share_a_machine_as_far_as_machines_have_room(machines, together):
    order = by_machine(machines, together)

    assert sorted(order) == list(range(len(machines)))
    groups = [order[i : i + together] for i in range(0, len(order), together)]
    whole = [g for g in groups if len(g) == together and len({machines[i] for i in g}) == 1]
    assert len(whole) >= sum(count // together for count in Counter(machines).values())
    assert spread([machines[place] for place in order], together) == len(
        [group for group in groups if len({machines[i] for i in group}) > 1]
    )


@pytest.mark.parametrize(
    ("machines", "together", "split"),
    [("aabb", 2, 0), ("abb", 1, 0), ("aaabbb", 2, 1), ("aaaabbb", 4, 0), ("abcd", 2, 2)],
)
def test_replicas_on_several_machines_are_counted(machines, together, split):
    assert spread(machines, together) == split
