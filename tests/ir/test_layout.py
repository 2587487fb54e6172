"""Layouts as text."""

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.errors import RunFileError
from flowrl.ir.layout import AXES, Layout

sizes = st.integers(1, 12)
layouts = st.builds(
    Layout, **{axis: sizes for axis in AXES}, along_tp=st.booleans(), whole_experts=st.booleans()
)


@given(layouts)
def test_what_a_layout_prints_it_reads(layout):
    assert Layout.parse(str(layout)) == layout


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("1", "1"),
        ("fsdp8", "fsdp8"),
        ("dp4 x tp2", "tp2 x dp4"),
        ("dp2xtp4*pp2", "pp2 x tp4 x dp2"),
        ("fsdp4 x dp2", "fsdp4 x dp2"),
        ("ep8 x dp1", "ep8"),
        ("tp8 + ep x dp2", "tp8+ep x dp2"),
        ("fsdp8 along tp", "fsdp8 along tp"),
        ("fsdp8 along tp+ep", "fsdp8 along tp+ep"),
    ],
)
def test_axes_are_written_in_one_order_and_those_of_one_are_left_out(text, printed):
    assert str(Layout.parse(text)) == printed


def test_the_size_is_the_product_of_the_axes():
    layout = Layout.parse("pp2 x tp4 x fsdp3")

    assert layout.size == 24
    assert dict(layout.axes) == {"pp": 2, "dp": 1, "fsdp": 3, "ep": 1, "tp": 4}


def test_neighbouring_ranks_differ_in_tp_and_the_farthest_in_pp():
    layout = Layout.parse("pp2 x dp3 x tp2")

    places = [layout.coordinates(index) for index in range(layout.size)]

    assert [(p["pp"], p["dp"], p["tp"]) for p in places] == [
        (pp, dp, tp) for pp in range(2) for dp in range(3) for tp in range(2)
    ]


@given(layouts, st.data())
def test_every_rank_has_a_place_of_its_own(layout, data):
    index = data.draw(st.integers(0, layout.size - 1))

    place = layout.coordinates(index)

    assert index == reduce(lambda above, axis: above * layout.axes[axis] + place[axis], AXES, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "fdsp8",
            snapshot("""\
`fdsp8` is not a layout: `fdsp8` (did you mean `fsdp`?)
help: the axes are pp, tp, ep, fsdp, dp; write axes and sizes joined by `x`: `fsdp8`, `tp2 x dp4`, `pp2 x tp4 x dp2`; `1` is one GPU\
"""),
        ),
        (
            "8",
            snapshot("""\
`8` is not a layout: `8`
help: the axes are pp, tp, ep, fsdp, dp; write axes and sizes joined by `x`: `fsdp8`, `tp2 x dp4`, `pp2 x tp4 x dp2`; `1` is one GPU\
"""),
        ),
        (
            "tp2 x dp2 x tp4",
            snapshot("""\
`tp2 x dp2 x tp4` names the axis `tp` twice
help: write axes and sizes joined by `x`: `fsdp8`, `tp2 x dp4`, `pp2 x tp4 x dp2`; `1` is one GPU\
"""),
        ),
        (
            "tp0",
            snapshot("""\
`tp0` is not an axis of a layout
help: write axes and sizes joined by `x`: `fsdp8`, `tp2 x dp4`, `pp2 x tp4 x dp2`; `1` is one GPU\
"""),
        ),
        (
            "dp8+ep",
            snapshot("""\
`dp8+ep` is not a layout: `dp8+ep`
help: `along tp` follows `fsdp`, and `+ep` follows `tp`: `fsdp8 along tp`, `tp8+ep`\
"""),
        ),
        (
            "",
            snapshot("""\
`` is not a layout: ``
help: the axes are pp, tp, ep, fsdp, dp; write axes and sizes joined by `x`: `fsdp8`, `tp2 x dp4`, `pp2 x tp4 x dp2`; `1` is one GPU\
"""),
        ),
    ],
)
def test_what_is_no_layout_is_refused(text, said):
    with pytest.raises(RunFileError) as refused:
        Layout.parse(text)

    assert str(refused.value) == said
