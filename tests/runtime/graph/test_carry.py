"""Rows that are carried from step to step."""

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import flowrl as fl
from flowrl.functional.ragged import Ragged
from flowrl.ir.types import DType
from flowrl.runtime.graph import carry
from flowrl.runtime.rows.rows import Row
from tests.runtime import steps
from tests.runtime.replay import replayed
from tests.runtime.rows.test_selection import AXES, packed, trees, unpacked


@given(trees, trees, st.integers(1, 9))
def test_append_keeps_the_last_of_both_lists(earlier, later, capacity):
    both = carry.append(packed(earlier), packed(later), capacity, AXES)

    assert unpacked(both) == (earlier + later)[-capacity:]


@given(st.lists(st.integers()), st.lists(st.integers()), st.integers(1, 9))
def test_append_keeps_the_last_rows_of_data(earlier, later, capacity):
    both = carry.append(tuple(earlier), tuple(later), capacity, AXES[:1])

    assert both == tuple((earlier + later)[-capacity:])


@given(trees)
def test_appending_to_no_rows_gives_the_rows(tree):
    none = carry.no_rows(DType.I32, 3)

    assert unpacked(carry.append(none, packed(tree), 9, AXES)) == tree


@pytest.mark.parametrize(
    ("dtype", "of"),
    [(DType.I32, torch.int64), (DType.BOOL, torch.bool), (DType.F32, torch.float32)],
)
def test_no_rows_are_of_the_dtype_and_depth(dtype, of):
    none = carry.no_rows(dtype, 2)

    assert none.values.dtype == of
    assert [len(level) for level in none.lengths] == [0]


def test_written_rows_are_read_by_torch_alone(tmp_path):
    rows = (Row(3, "data.jsonl:4", "why?", {"answer": "b"}),)
    tokens = Ragged(torch.tensor([5, 6]), (torch.tensor([1]), torch.tensor([2])))

    carry.write_rows(str(tmp_path / "replay.pt"), ["rows", "tokens"], rows, tokens)

    found = torch.load(tmp_path / "replay.pt", weights_only=True)
    assert found["rows"] == [attrs.asdict(rows[0])]
    assert [x.tolist() for x in found["tokens"]] == [[5, 6], [1], [2]]


@pytest.fixture
def ready(model_folder, tokenizer):
    """Return a function that makes an executor of the program, and its cursors."""

    def ready(**hyperparameters):
        traced = fl.trace(replayed, **hyperparameters)
        made = steps.executor(traced, steps.roles(traced, model_folder), tokenizer)
        return made, steps.cursors(traced, tokenizer)

    return ready


def seen(executor, cursors, count):
    """Return the carry after each step, and samples trained on and the age of the oldest."""
    carry, found, carries = executor.first(), [], []
    for step in range(count):
        done = executor.step(carry, cursors, step)
        carry = done.carry
        carries.append(carry)
        found.append((done.metrics["samples"], done.metrics["age"]))
    return carries, found


def test_a_step_trains_on_the_rows_of_the_steps_before_up_to_the_capacity(ready):
    _, found = seen(*ready(capacity=10), 4)

    assert found == [(8, 0), (16, 1), (20, 2), (20, 2)]


def test_the_last_rows_are_carried_with_the_versions_that_sampled_them(ready):
    carries, _ = seen(*ready(capacity=6), 2)

    replay = carries[-1]["replay"]
    assert [row.id for row in replay["replay.prompts.rows"]] == [2, 3, 4, 5, 6, 7]
    assert replay["replay.version"].values.tolist() == [0] * 4 + [1] * 8


def read(path):
    """Return the rows of a buffer that were written."""
    found = torch.load(path, weights_only=True)
    return {name: value_of(parts) for name, parts in found.items()}


def value_of(parts):
    if isinstance(parts[0], dict):
        return tuple(Row(**fields) for fields in parts)
    return Ragged(parts[0], tuple(parts[1:]))


def test_a_run_goes_on_with_rows_read_back_as_with_those_that_were_written(ready, tmp_path):
    executor, cursors = ready(capacity=6)
    _, expected = steps.run(executor, cursors, steps=3)
    stopped, cursors = ready(capacity=6)
    carry, _ = steps.run(stopped, cursors, steps=2)

    names = stopped.save_rows(str(tmp_path), carry)
    carry |= {name: read(tmp_path / f"{name}.pt") for name in names}
    done = stopped.step(carry, cursors, 2)

    assert names == ["replay"]
    assert done.metrics == expected
