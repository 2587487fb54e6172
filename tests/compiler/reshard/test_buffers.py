"""Buffers of bounded size that both sides derive alike."""

from hypothesis import given, settings
from hypothesis import strategies as st

from flowrl.compiler.hardware import Machines
from flowrl.compiler.reshard import Send, buffers, plan_reshard
from flowrl.compiler.shapes.known import known_shape
from flowrl.ir.box import elements
from tests.compiler.layouts.models import placed
from tests.compiler.reshard.cases import cases
from tests.compiler.reshard.execute import executed, numbers, same, stored

NODE = Machines.parse("8xH100")


@settings(max_examples=30)
@given(cases(), st.sampled_from([1, 10, 100, 1000]))
def test_no_buffer_is_over_its_limit_unless_one_element_is(case, limit):
    plan = plan_reshard(*case)

    found = buffers(plan.sends(), limit)

    assert all(buffer.bytes <= max(limit, plan.sent_bytes) for buffer in found)
    assert sum(buffer.bytes for buffer in found) == plan.bytes_moved


@settings(max_examples=30)
@given(cases(), st.sampled_from([1, 30, 300]))
def test_small_buffers_bring_the_same_weights(case, limit):
    shape, src, dst, _ = case
    plan, whole = plan_reshard(*case), numbers(shape)

    got = executed(plan, shape, stored(whole, shape, src), limit=limit)

    assert same(got, stored(whole, shape, dst))


@settings(max_examples=30)
@given(cases(), st.data())
def test_a_rank_that_reads_its_own_sends_only_finds_the_same_buffers(case, data):
    plan = plan_reshard(*case)
    rank = data.draw(st.sampled_from(plan.dst.ranks))

    mine = buffers(plan.sends(rank), 200)

    everyones = buffers(plan.sends(), 200)
    assert mine == tuple(b for b in everyones if rank in (b.source, b.destination))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(1, 40))
def test_a_slice_that_is_too_large_is_cut_into_slices_that_share_nothing(sizes, most):
    box = tuple((1, 1 + size) for size in sizes)

    whole = Send(0, 1, "w", box, 2 * elements(box))

    found = [send for buffer in buffers([whole], 2 * most) for send in buffer.sends]

    cells = [cell for send in found for cell in cells_of(send.box)]
    assert sorted(cells) == sorted(cells_of(box))
    assert all(send.bytes == 2 * elements(send.box) <= 2 * most for send in found)


def cells_of(box):
    if not box:
        return [()]
    return [(i, *rest) for i in range(*box[0]) for rest in cells_of(box[1:])]


def test_a_model_goes_in_few_buffers():
    """7.6 billion numbers of 2 bytes from one GPU to another: 15.2 GB in buffers of 256 MiB."""
    plan = plan_reshard(known_shape("qwen2.5-7b"), placed("1"), placed("1", 1), NODE)

    found = buffers(plan.sends())

    assert plan.bytes_moved == 15_231_233_024
    assert 57 <= len(found) < 100
