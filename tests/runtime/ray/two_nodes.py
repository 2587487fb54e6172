"""What a process with a Ray of its own finds on two nodes of four emulated GPUs, as JSON.

`python -m tests.runtime.ray.two_nodes RUN_FILE`
"""

import json
import logging
import os
import sys
from contextlib import contextmanager
from unittest import mock

import psutil
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from flowrl.errors import FlowrlError
from flowrl.runtime.pools import channels, pools
from flowrl.runtime.pools.held import IDS
from flowrl.runtime.pools.pools import PoolSize, RaySpec, started
from flowrl.train.run import run_file
from tests.rewards.processes import ended

GPUS = 4
RANKS = PoolSize("train", 3, gpus=3, cpus=0.25)
WIDE = PoolSize("wide", 6, gpus=6, cpus=0.1, together=3)
REST = (PoolSize("rollout", 1, gpus=1, cpus=0.25), PoolSize("data", cpus=0.25))
REFUSED = {
    "more GPUs than there are": PoolSize("train", 12, gpus=12, cpus=0.1),
    "more on a machine than it has": PoolSize("train", 1, gpus=5),
}


@ray.remote(num_cpus=0)
class Others:
    """Another run, which holds GPUs."""

    def held(self):
        return True


def held(node):
    """Hold a GPU of a node."""
    where = NodeAffinitySchedulingStrategy(node, soft=False)
    return Others.options(num_gpus=1, scheduling_strategy=where).remote()


def here():
    """Return the node of a worker, the GPUs that it sees, and its process."""
    node = ray.get_runtime_context().get_node_id()
    return node, os.environ.get("CUDA_VISIBLE_DEVICES"), os.getpid()


def refused(size):
    """Return the text of the error in which a request ends that Ray can't meet."""
    try:
        with mock.patch.object(pools, "PATIENCE", 3.0), started(RaySpec((size,))):
            return "placed"
    except FlowrlError as error:
        return str(error)


def warned(size):
    """Return what is warned of as a pool starts."""
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    pools.log.addHandler(handler)
    with started(RaySpec((size,))):
        pools.log.removeHandler(handler)
    return records


def places(lines):
    """Return where each worker is."""
    result = next(IDS)
    ray.get([line.call("call", here, [], result) for line in lines])
    return [channels.get(ray.get(line.call("send", "", (), result)))[0] for line in lines]


def left(workers):
    """Return what of a run is still there: placement groups, and whether any worker is."""
    groups = ray.util.placement_group_table().values()
    return [g["state"] for g in groups if g["state"] != "REMOVED"], not ended(*workers)


def main(path):
    cluster = Cluster()
    for _ in range(2):
        cluster.add_node(num_cpus=4, num_gpus=GPUS)
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    nodes = [node["NodeID"] for node in ray.nodes()]
    told = {name: refused(size) for name, size in REFUSED.items()}
    told["replicas on two machines"] = warned(WIDE)
    others = [held(node) for node in nodes for _ in range(GPUS // 2)]
    ray.get([other.held.remote() for other in others])
    told["more than others leave"] = refused(PoolSize("train", 6, gpus=6, cpus=0.1))

    with started(RaySpec((RANKS, *REST))) as made:

        @contextmanager
        def kept(spec):
            yield made

        seen = {name: places(lines) for name, lines in made.items()}
        workers = [psutil.Process(pid) for its in seen.values() for *_, pid in its]
        with mock.patch("flowrl.train.on_ray.started", kept):
            run_file(path)
    print(json.dumps({"told": told, "nodes": nodes, "seen": seen, "left": left(workers)}))


if __name__ == "__main__":
    main(sys.argv[1])
