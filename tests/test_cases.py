"""The 68 published cases, in both precisions."""

import json
from pathlib import Path

import pytest
import torch

from tests.case_adapter import run
from tests.cases.check_cases import check

CASES = json.loads((Path(__file__).parent / "cases" / "cases.json").read_text())


def test_there_are_68_cases():
    assert len(CASES) == 68


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_library_gives_the_expected_outputs(case, dtype):
    fault = check(case, lambda *args: run(*args, dtype=dtype), dtype is torch.float32)

    assert fault is None


def test_penalties_that_no_binary_number_is_are_right_in_double_precision():
    params = {"max_len": 10, "cache_len": 5, "factor": 0.5}

    out = run("overlong_penalty", {"lengths": [5, 6, 11]}, params)

    assert out["penalty"] == pytest.approx([0, -0.1, -0.5], abs=1e-12)
