"""Type rules written as types: what they accept, broadcast and refuse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.ir.signature import Signature, TypeRuleError
from flowrl.ir.types import Axis, ModelType, boolean, f32, i32

PROMPT, SAMPLE, TOKEN = (Axis(name, 1, "generate") for name in ("prompt", "sample", "token"))
OTHER = Axis("sample", 2, "score")
AXES = (PROMPT, SAMPLE, TOKEN)


def infer(signature, *types):
    """Return the result types as they print."""
    return ", ".join(map(str, Signature.parse(signature).infer(types)))


def refusal(signature, *types):
    """Return why a signature refuses types."""
    with pytest.raises(TypeRuleError) as error:
        Signature.parse(signature).infer(types)
    return error.value.problem


def test_a_name_stands_for_one_axis_and_dots_for_any():
    assert infer("f32[..., token] -> f32[...]", f32(*AXES)) == "f32[prompt, sample]"
    assert infer("f32[prompt, sample] -> f32[prompt]", f32(PROMPT, SAMPLE)) == "f32[prompt]"
    assert infer("f32[...] -> f32[...]", f32()) == "f32[]"


def test_a_group_is_a_dimension_that_may_stand_in_the_middle():
    assert infer("f32[prompt, ..., token] -> f32[...]", f32(*AXES)) == "f32[sample]"


def test_the_first_axes_broadcast_into_all():
    assert infer("f32[...], f32[...] -> f32[...]", f32(PROMPT), f32(*AXES)) == f"{f32(*AXES)}"
    assert infer("f32[...], f32[...] -> f32[...]", f32(*AXES), f32()) == f"{f32(*AXES)}"


def test_a_scalar_broadcasts_into_named_axes():
    assert infer("f32[..., token], f32[..., token] -> f32[...]", f32(), f32(*AXES)) == (
        "f32[prompt, sample]"
    )


def test_any_takes_the_dtype_of_the_first_argument():
    assert infer("any[...] -> any[...]", boolean(PROMPT)) == "bool[prompt]"


def test_numbers_may_be_bools_and_integers():
    assert infer("number[...], number[...] -> f32[...]", i32(), boolean()) == "f32[]"


def test_axes_of_equal_rank_by_other_makers_are_refused():
    assert refusal("f32[...], f32[...] -> f32[...]", f32(PROMPT, SAMPLE), f32(PROMPT, OTHER)) == (
        snapshot(
            "`argument 2` must be f32[prompt, sample], or the first axes of that; got f32[prompt, sample'2] (sample by generate; sample'2 by score)"
        )
    )


def test_the_last_axes_do_not_broadcast():
    assert refusal("f32[...], f32[...] -> f32[...]", f32(PROMPT, SAMPLE), f32(SAMPLE)) == snapshot(
        "`argument 2` must be f32[prompt, sample], or the first axes of that; got f32[sample] (prompt by generate; sample by generate)"
    )


def test_one_name_is_one_axis_in_every_argument():
    signature = "f32[..., sample], bool[..., sample] -> f32[]"

    assert refusal(signature, f32(PROMPT, SAMPLE), boolean(PROMPT, OTHER)) == snapshot(
        "`argument 2` must be bool[prompt, sample], or the first axes of that; got bool[prompt, sample'2] (sample by generate; sample'2 by score)"
    )


def test_a_scalar_pattern_takes_no_axes():
    assert refusal("f32[...], f32[] -> f32[...]", f32(PROMPT), f32(PROMPT)) == snapshot(
        "`argument 2` must be f32[]; got f32[prompt]"
    )


def test_a_model_is_no_tensor():
    assert refusal("f32[...] -> f32[...]", ModelType("policy")) == snapshot(
        "`argument 1` must be f32[...]; got model<policy>"
    )


@pytest.mark.parametrize(
    "text",
    [
        "f32[...]",
        "f32 -> f32",
        "f32[...] -> f64[...]",
        "f32[...] f32[...] -> f32[...]",
        "f32[prompt] -> f32[sample]",
        "f32[prompt, prompt] -> f32[]",
        "f32[..., ...] -> f32[]",
        "number[...] -> number[...]",
        "f32[prompt -> f32[]",
        "-> f32[]",
    ],
)
def test_what_is_no_type_rule_is_refused(text):
    with pytest.raises(ValueError, match=r"\w"):
        Signature.parse(text)


@given(ranks=st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_arguments_on_first_axes_of_one_type_broadcast_to_the_deepest(ranks):
    types = tuple(f32(*AXES[:rank]) for rank in ranks)
    signature = Signature.parse(f"{', '.join(['f32[...]'] * len(ranks))} -> f32[...]")

    assert signature.infer(types) == (f32(*AXES[: max(ranks)]),)
    assert signature.broadcast(types) == [AXES[: max(ranks)]] * len(ranks)


def test_a_signature_prints_as_it_was_written():
    text = "f32[..., token], bool[..., token] -> f32[...], f32[]"

    assert str(Signature.parse(text)) == text
