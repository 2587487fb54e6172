"""Laws of resharding: complete, minimal, balanced, for any pair of shardings."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flowrl.compiler.reshard import plan_reshard
from tests.compiler.reshard.cases import cases, near
from tests.compiler.reshard.execute import executed, numbers, same, slices, stored, tensors_of


@given(cases())
def test_executed_plans_leave_every_rank_what_the_whole_model_gives_it(case):
    shape, src, dst, cluster = case
    whole = numbers(shape)

    plan = plan_reshard(shape, src, dst, cluster)

    assert same(executed(plan, shape, stored(whole, shape, src)), stored(whole, shape, dst))


@settings(max_examples=50)
@given(cases(), st.data())
def test_any_send_that_is_lost_is_missed(case, data):
    shape, src, dst, cluster = case
    plan, whole = plan_reshard(shape, src, dst, cluster), numbers(shape)
    sends = list(plan.sends())
    lost = [data.draw(st.sampled_from(sends))] if sends else []

    got = executed(plan, shape, stored(whole, shape, src), without=lost)

    assert same(got, stored(whole, shape, dst)) == (not lost)


@given(cases())
def test_what_a_rank_needs_and_lacks_is_sent_to_it_once_and_nothing_else_is(case):
    shape, src, dst, cluster = case
    lacks, held = counts(dst, shape), counts(src, shape)
    for rank in set(src.ranks) & set(dst.ranks):
        lacks[rank] = {name: n * (held[rank][name] == 0) for name, n in lacks[rank].items()}

    plan = plan_reshard(shape, src, dst, cluster)

    for send in plan.sends():
        lacks[send.destination][send.parameter][slices(send.box)] -= 1
    assert not any(n.any() for mine in lacks.values() for n in mine.values())
    assert plan.bytes_moved == plan.lower_bound == sum(send.bytes for send in plan.sends())


def counts(sharding, shape):
    """How often each rank stores each element of each parameter."""
    found = {}
    for rank, shards in tensors_of(sharding, shape).items():
        found[rank] = {p.name: np.zeros(p.shape, np.int8) for p in shape.parameters()}
        for piece in (piece for shard in shards for piece in shard.pieces):
            found[rank][piece.parameter][slices(piece.box)] += 1
    return found


@given(cases())
def test_ranks_of_a_node_that_hold_the_same_send_alike_but_for_one_slice(case):
    shape, src, dst, cluster = case
    sends = list(plan_reshard(shape, src, dst, cluster).sends())
    sent = Counter()
    for send in sends:
        if not send.hop:
            sent[send.source, near(send, cluster)] += send.bytes

    alike = {}
    for rank, shards in tensors_of(src, shape).items():
        alike.setdefault((cluster.node(rank), shards), []).append(rank)

    largest = max((send.bytes for send in sends), default=0)
    for ranks in alike.values():
        for inside in (True, False):
            each = [sent[rank, inside] for rank in ranks]
            assert max(each) - min(each) <= largest


@given(cases())
def test_a_node_gets_what_none_of_its_ranks_holds_once_and_nothing_else(case):
    shape, src, dst, cluster = case
    lacks = on_nodes(counts(dst, shape), cluster)
    for node, held in on_nodes(counts(src, shape), cluster).items():
        for name in lacks.get(node, ()):
            lacks[node][name] &= ~held[name]

    for send in plan_reshard(shape, src, dst, cluster).sends():
        if not near(send, cluster):
            wanted = lacks[cluster.node(send.destination)][send.parameter][slices(send.box)]
            assert wanted.all()
            wanted[...] = False

    assert not any(left.any() for node in lacks.values() for left in node.values())


def on_nodes(counts, cluster):
    """What each node holds, by what each rank does."""
    found = {}
    for rank, mine in counts.items():
        node = found.setdefault(cluster.node(rank), {})
        for name, count in mine.items():
            node[name] = node.get(name, False) | (count > 0)
    return found


@given(cases())
def test_a_rank_that_passes_something_on_got_it_one_hop_before(case):
    shape, src, dst, cluster = case
    arrived = {}

    for send in plan_reshard(shape, src, dst, cluster).sends():
        slice_ = send.parameter, send.box
        assert send.hop == arrived.get((send.source, *slice_), -1) + 1
        arrived[send.destination, *slice_] = send.hop
