import asyncio
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.rewards.call import Fault, call


def returning(result, count=1):
    return call(lambda: result, {}, count)


@pytest.mark.parametrize(
    "result",
    [
        [1, 0.5],
        (True, 0.5),
        np.array([1.0, 0.5]),
        np.array([1.0, 0.5], dtype=object),
        torch.tensor([1.0, 0.5], dtype=torch.bfloat16, requires_grad=True),
        [np.float32(1), np.array(0.5)],
        [np.True_, torch.tensor(0.5)],
        [Decimal(1), Fraction(1, 2)],
    ],
)
def test_every_kind_of_number_is_a_score(result):
    reply = returning(result, 2)

    assert reply == [1.0, 0.5]
    assert [type(score) for score in reply] == [float, float]


@given(st.lists(st.floats() | st.integers() | st.booleans() | st.none() | st.text()))
def test_a_reply_has_a_finite_float_or_a_fault_for_each_completion(result):
    reply = returning(result, len(result))

    assert len(reply) == len(result)
    assert all(isinstance(r, Fault) or (type(r) is float and math.isfinite(r)) for r in reply)


def test_the_largest_number_of_float32_is_a_score():
    largest = torch.finfo(torch.float32).max

    assert returning([largest, -largest], 2) == [largest, -largest]


def test_what_is_no_number_is_the_fault_of_its_completion_alone():
    result = [None, math.nan, -math.inf, 10**400, -1e39, "0.5", [1.0], 1j, torch.zeros(2), 1.0]

    reply = returning(result, len(result))

    assert [r if isinstance(r, float) else f"{r.kind}: {r.text}" for r in reply] == snapshot(
        [
            "not_a_number: returned None",
            "not_a_number: returned nan",
            "not_a_number: returned -inf",
            "not_a_number: returned inf",
            "not_a_number: returned -1e+39, more than float32 holds",
            "wrong_type: returned str ('0.5') where a number belongs",
            "wrong_type: returned list ([1.0]) where a number belongs",
            "wrong_type: returned complex (1j) where a number belongs",
            "wrong_type: returned Tensor (tensor([0., 0.])) where a number belongs",
            1.0,
        ]
    )


@pytest.mark.parametrize("result", [None, 0.5, "0.5", {"a": 1.0}, np.float64(0.5), iter([1.0])])
def test_what_is_no_list_is_the_fault_of_the_call(result):
    reply = returning(result)

    assert isinstance(reply, Fault)
    assert reply.kind == "wrong_type"
    assert f"returned {type(result).__name__} (" in reply.text
    assert reply.text.endswith("not a list of 1 numbers")


def test_a_wrong_count_names_both_lengths():
    assert returning([1.0], 2) == snapshot(
        Fault(kind="wrong_count", text="returned 1 score for 2 completions")
    )


def test_an_exception_is_told_with_its_type_text_and_line():
    def reward(completions):
        return [{}[c] for c in completions]

    reply = call(reward, {"completions": ["x7"]}, 1)

    assert (reply.kind, reply.text) == snapshot(("exception", "raised KeyError: 'x7'"))
    assert "test_call.py:" in reply.source
    assert "return [{}[c] for c in completions]" in reply.source


def test_an_async_function_is_run_to_its_end():
    async def reward(completions):
        return await asyncio.gather(*map(length, completions))

    async def length(completion):
        await asyncio.sleep(0)
        return len(completion)

    assert call(reward, {"completions": ["a", "abc"]}, 2) == [1.0, 3.0]


def test_an_exception_of_an_async_function_is_told_with_its_line():
    async def reward(completions):
        await asyncio.sleep(0)
        raise ValueError("x7")

    reply = call(reward, {"completions": ["a"]}, 1)

    assert reply.text == "raised ValueError: x7"
    assert 'raise ValueError("x7")' in reply.source


def test_a_long_text_of_an_exception_is_cut():
    def reward(completions):
        raise ValueError("x" * 9000)

    reply = call(reward, {"completions": ["a"]}, 1)

    assert reply.text == f"raised ValueError: {'x' * 488}..."


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit])
def test_leaving_the_program_is_the_fault_of_the_call(error):
    def reward():
        raise error(4)

    async def awaited():
        await asyncio.sleep(0)
        reward()

    async def gathered():
        await asyncio.gather(asyncio.to_thread(reward))

    for function in (reward, awaited, gathered):
        reply = call(function, {}, 1)
        assert reply.text == f"raised {error.__name__}: 4"
        assert "raise error(4)" in reply.source


def test_scores_that_raise_as_they_are_read_are_told_with_their_line():
    class Scores(list):
        def __len__(self):
            raise SystemExit(4)

    reply = call(Scores, {}, 1)

    assert reply.text == "raised SystemExit: 4"
    assert "raise SystemExit(4)" in reply.source


def test_a_text_that_cannot_be_parsed_is_told_with_the_line_that_reads_it():
    reply = call(lambda: eval("1 +"), {}, 1)

    assert reply.text == snapshot("raised SyntaxError: invalid syntax")
    assert "eval(" in reply.source


@pytest.mark.parametrize(
    "place",
    [("1 +" * 100, 1, 1, ""), (7, 1, 1, ""), (__file__, "x", 1, ""), (__file__, None, 1, "")],
)
def test_an_error_of_a_text_whose_place_is_no_files_is_the_fault_of_its_call(place):
    def reward():
        raise SyntaxError("invalid syntax", place)

    reply = call(reward, {}, 1)

    assert reply.text.startswith("raised SyntaxError: invalid syntax")
    assert 'raise SyntaxError("invalid syntax", place)' in reply.source


def test_what_is_no_exception_is_the_fault_of_its_call_but_ctrl_c_passes():
    def raising(error):
        raise error

    assert call(raising, {"error": asyncio.CancelledError()}, 1).text == snapshot(
        "raised asyncio.exceptions.CancelledError"
    )
    with pytest.raises(KeyboardInterrupt):
        call(raising, {"error": KeyboardInterrupt()}, 1)


def test_an_exception_that_cannot_be_printed_is_told_all_the_same():
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    def reward():
        raise Mute

    assert "Mute" in call(reward, {}, 1).text


def test_keyboard_interrupt_is_not_taken_for_a_fault():
    def reward():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(reward, {}, 1)
