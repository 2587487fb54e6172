"""The lengths that a plan is made for."""

import pytest


@pytest.mark.parametrize(
    "lengths",
    ["{mean = 50, max = 5}", "{mean = 5, max = 9, p99 = 4}", "{mean = '5'}", "[]", "[[1, 2], [3]]"],
)
def test_lengths_that_no_plan_could_take(error_of, lengths):
    text = error_of(f"[workload]\nresponse_tokens = {lengths}\n")

    assert text.startswith("`workload.response_tokens`: lengths need ")
    assert f"21 | response_tokens = {lengths}\n" in text
