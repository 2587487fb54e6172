"""Types print in one notation, and axes are equal only if one op made both."""

from flowrl.errors import Location
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.types import (
    Axis,
    ModelType,
    Origin,
    SelectionType,
    TensorType,
    axes_of,
    boolean,
    f32,
    i32,
)

PROMPT, TOKEN = Axis("prompt", 1, "prompts"), Axis("token", 1, "generate")
LATER = Axis("token", 2, "score", Location("grpo.py", 9))


def test_types_print_a_dtype_and_axes():
    printed = [str(type) for type in (f32(), i32(PROMPT), boolean(PROMPT, LATER))]

    assert printed == ["f32[]", "i32[prompt]", "bool[prompt, token'2]"]


def test_an_axis_is_its_name_and_number():
    assert Axis("token", 2) == LATER
    assert TOKEN != LATER
    assert LATER.history() == "token'2 by score at grpo.py:9"


def test_an_origin_prints_what_departs_from_plain_sampling():
    plain = Origin("policy", 0, 1.0)
    cut = Origin("policy", 2, 0.5, top_p=0.9, top_k=50, sampled=True)

    assert (str(plain), str(cut)) == ("policy.0 T=1", "policy.2 T=0.5 top_p=0.9 top_k=50 sampled")


def test_a_selection_renames_axes_and_keeps_the_origin():
    origin = Origin("policy", 0, 1.0)
    selection = SelectionType(((TOKEN, LATER),))
    before = TensorType(f32().dtype, (PROMPT, TOKEN), origin)

    assert selection.rename(before) == TensorType(f32().dtype, (PROMPT, LATER), origin)


def test_a_snapshot_is_another_type_than_its_model_and_versions_are_not():
    assert ModelType("policy") == ModelType("policy", version=3)
    assert ModelType("policy") != ModelType("policy", snapshot=True)


def test_axes_of_several_types_come_once_each_in_order():
    types = [f32(PROMPT, TOKEN), f32(PROMPT, LATER), ModelType("policy")]

    assert axes_of(types) == [PROMPT, TOKEN, LATER]


def test_a_value_shows_as_its_type():
    builder = GraphBuilder("shown")
    prompt = builder.axis("prompt", "test", None)

    assert repr(builder.input("x", f32(prompt))) == "f32[prompt]"
