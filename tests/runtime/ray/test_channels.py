"""Tensors cross processes as bytes: equal, aligned, and their own."""

import pytest
import torch

from flowrl.runtime.pools.channels import Bytes


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (5, 7)])
def test_a_tensor_is_the_same_after_crossing(dtype, shape):
    tensor = (10 * torch.rand(shape)).to(dtype)

    found = Bytes.of(tensor).tensor()

    assert (found.dtype, found.shape) == (dtype, tensor.shape)
    assert torch.equal(found, tensor)


def test_a_tensor_that_is_not_contiguous_crosses_too():
    tensor = torch.arange(12.0).view(3, 4).T[1:]

    assert torch.equal(Bytes.of(tensor).tensor(), tensor)


def test_what_arrives_can_be_written_and_lies_where_torch_puts_tensors():
    sent = torch.zeros(1000)

    found = Bytes.of(sent).tensor()
    found += 1

    assert sent.sum() == 0
    assert found.data_ptr() % 64 == 0
