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
