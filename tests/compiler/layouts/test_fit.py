"""Which layouts a model can have."""

import pytest
from inline_snapshot import snapshot

from flowrl.compiler.layouts import check_fit, misfit
from flowrl.compiler.shapes.known import known_shape
from flowrl.errors import RunFileError
from flowrl.ir.layout import Layout
from tests.compiler.layouts.models import small


@pytest.mark.parametrize(
    ("family", "layout", "said"),
    [
        (
            "llama",
            "tp3",
            snapshot(
                "`tp` 3 doesn't divide the 4 heads of `model.layers.0.self_attn.q_proj.weight`"
            ),
        ),
        (
            "qwen2",
            "tp8",
            snapshot(
                "`tp` 8 doesn't divide the 4 heads of `model.layers.0.self_attn.q_proj.weight`"
            ),
        ),
        ("llama", "pp4", snapshot("`pp` 4 is more than its 3 layers")),
        ("llama", "ep2", snapshot("`ep` divides experts, and it has none")),
        ("qwen3_moe", "ep6", snapshot("it has 5 experts for 6 ranks")),
        ("qwen3_moe", "ep2 x tp4+ep", snapshot("it has 5 experts for 8 ranks")),
    ],
)
def test_a_layout_that_does_not_fit_says_what_does_not_divide(family, layout, said):
    assert misfit(small(family), Layout.parse(layout)) == said


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("qwen2.5-7b", "tp4 x dp2"),
        ("llama-2-70b", "pp3 x tp8 x dp2"),
        ("llama-3.1-8b", "tp32"),
        ("qwen3-30b-a3b", "tp4+ep x dp2"),
        ("mixtral-8x7b", "ep8 x fsdp3"),
        ("smollm2-135m", "fsdp1000"),
    ],
)
def test_layouts_that_fit(name, layout):
    assert not misfit(known_shape(name), Layout.parse(layout))


def test_a_layout_that_does_not_fit_is_an_error_with_what_to_do():
    with pytest.raises(RunFileError) as refused:
        check_fit(known_shape("qwen2.5-7b"), Layout.parse("tp8"))

    assert str(refused.value) == snapshot("""\
the layout `tp8` doesn't fit this qwen2 model: `tp` 8 doesn't divide the 28 heads of `model.layers.0.self_attn.q_proj.weight`
help: divide by fewer, and fill the pool with `dp` or `fsdp`\
""")
