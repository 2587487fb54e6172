"""What ranks do for one op, by its layout."""

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.compiler.schedule.events import Mesh, along
from flowrl.ir.layout import AXES, Layout

sizes = st.sampled_from([1, 2, 3])
layouts = st.builds(Layout, pp=sizes, dp=sizes, fsdp=sizes, ep=sizes, tp=sizes)


def mesh(text, first=0):
    layout = Layout.parse(text)
    return Mesh("%9 update policy", "grpo.py:18", layout, range(first, first + layout.size))


def shown(events):
    return [f"{e.does} {e.along} {list(map(list, e.groups))}" for e in events]


def test_an_update_gathers_weights_for_each_pass_and_sums_gradients():
    assert shown(mesh("fsdp2 x dp2").update(passes=1)) == snapshot(
        [
            "scatter pool [[0, 1, 2, 3]]",
            "all-gather fsdp [[0, 1], [2, 3]]",
            "compute alone [[0], [1], [2], [3]]",
            "all-gather fsdp [[0, 1], [2, 3]]",
            "compute alone [[0], [1], [2], [3]]",
            "reduce-scatter fsdp [[0, 1], [2, 3]]",
            "all-reduce dp [[0, 2], [1, 3]]",
            "all-reduce pool [[0, 1, 2, 3]]",
        ]
    )


def test_stages_hand_states_on_and_gradients_back():
    assert shown(mesh("pp2 x tp2").update(passes=1)) == snapshot(
        [
            "scatter pool [[0, 1, 2, 3]]",
            "compute alone [[0], [1]]",
            "all-reduce tp [[0, 1]]",
            "send pp [[0, 2], [1, 3]]",
            "compute alone [[2], [3]]",
            "all-reduce tp [[2, 3]]",
            "compute alone [[2], [3]]",
            "all-reduce tp [[2, 3]]",
            "send pp [[2, 0], [3, 1]]",
            "compute alone [[0], [1]]",
            "all-reduce tp [[0, 1]]",
            "all-reduce pool [[0, 1, 2, 3]]",
        ]
    )


def test_the_last_stage_tells_the_first_which_token_it_sampled():
    assert shown(mesh("pp2").generate()) == snapshot(
        [
            "scatter pool [[0, 1]]",
            "compute alone [[0]]",
            "send pp [[0, 1]]",
            "compute alone [[1]]",
            "send pp [[1, 0]]",
            "gather pool [[0, 1]]",
        ]
    )


def test_scoring_on_one_gpu_meets_nobody():
    assert shown(mesh("1").score()) == snapshot(["compute alone [[0]]"])


@given(layouts, st.sampled_from([axis for axis in AXES if axis != "pp"]))
def test_the_groups_of_an_axis_are_the_ranks_that_differ_along_it_only(layout, axis):
    each = layout.size // layout.pp

    groups = along(layout, axis, range(each))

    if layout.axes[axis] > 1:
        assert sorted(rank for group in groups for rank in group) == list(range(each))
    for group in groups:
        places = [dict(layout.coordinates(rank)) for rank in group]
        assert [place.pop(axis) for place in places] == list(range(layout.axes[axis]))
        assert all(place == places[0] for place in places)
