"""Which link is the bottleneck."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings

from flowrl.compiler.reshard import plan_reshard, reshard_cost
from tests.compiler.reshard.cases import cases, near
from tests.compiler.reshard.execute import slices


@settings(max_examples=100)
@given(cases())
def test_the_bottleneck_is_the_link_that_takes_longest(case):
    shape, src, dst, cluster = case

    plan = plan_reshard(shape, src, dst, cluster)

    seconds = Counter()
    for send in plan.sends():
        for rank, verb in ((send.source, "sends"), (send.destination, "receives")):
            node = cluster.nodes[cluster.node(rank)]
            inside = near(send, cluster)
            speed = node.gpu.peer_bytes_per_s if inside else node.network_share
            link = (
                "the network" if not inside else "nvlink" if node.gpu.nvlink_bytes_per_s else "pcie"
            )
            seconds[f"rank {rank} {verb} over {link}"] += send.bytes / speed
    sizes = {p.name: p for p in shape.parameters()}
    for copy in plan.copies():
        size = np.zeros(sizes[copy.parameter].shape)[slices(copy.box)].size * dst.element_bytes
        seconds[f"rank {copy.rank} copies in its memory"] += size / cluster.bandwidth(
            copy.rank, copy.rank
        )
    longest = max(seconds.values(), default=0.0)
    assert plan.bottleneck.seconds == pytest.approx(longest)
    assert seconds.get(plan.bottleneck.link, 0.0) == pytest.approx(longest)
    assert reshard_cost(shape, src, dst, cluster) == (plan.bytes_moved, plan.seconds)
