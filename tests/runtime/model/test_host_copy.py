"""What tensors have waits in host memory while their own is gone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.errors import EngineError
from flowrl.runtime.model.host_copy import HostCopy

SHAPES = st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=4)


def in_use(tensors):
    return [tensor.untyped_storage().nbytes() for tensor in tensors.values()]


@given(SHAPES, st.sampled_from([torch.float32, torch.bfloat16, torch.int64]))
def test_tensors_come_back_as_they_were_and_take_nothing_meanwhile(shapes, dtype):
    tensors = {str(i): torch.randn(shape).to(dtype) for i, shape in enumerate(shapes)}
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    views = {name: tensor.view(-1) for name, tensor in tensors.items()}
    sizes, copy = in_use(tensors), HostCopy("cpu")

    copy.take(tensors.items())

    assert in_use(tensors) == [0] * len(tensors)
    assert all(torch.equal(copy.of(n, x), before[n]) for n, x in tensors.items())
    copy.give_back()
    assert in_use(tensors) == sizes
    assert all(torch.equal(x, before[n]) for n, x in tensors.items())
    assert all(torch.equal(x, before[n].view(-1)) for n, x in views.items())
    assert all(copy.of(n, x) is x for n, x in tensors.items())


def test_what_has_changed_is_copied_again_and_what_has_not_is_not():
    tensor, copy = torch.zeros(3), HostCopy("cpu")
    copy.take([("x", tensor)])
    copy.give_back()

    tensor.fill_(1)
    copy.changed = True
    copy.take([("x", tensor)])

    assert copy.of("x", tensor).tolist() == [1, 1, 1]
    copy.give_back()
    tensor.fill_(2)
    copy.take([("x", tensor)])
    copy.give_back()
    assert tensor.tolist() == [1, 1, 1]


def test_what_is_not_kept_takes_no_host_memory_and_comes_back_to_be_written():
    tensor, copy = torch.ones(3, 2), HostCopy("cpu")

    copy.take([("x", tensor)], keep=False)

    assert in_use({"x": tensor}) == [0]
    assert not copy.copies
    copy.give_back()
    assert tensor.fill_(4).sum() == 24
    copy.take([("x", tensor)])
    copy.give_back()
    assert tensor.sum() == 24


def test_tensors_elsewhere_stay():
    tensor = torch.ones(3)

    copy = HostCopy("meta")
    copy.take([("x", tensor)])
    assert in_use({"x": tensor}) == [12]
    copy.check("policy")


def test_a_model_that_sleeps_is_not_run():
    copy = HostCopy("cpu")
    copy.take([("x", torch.ones(3))])

    with pytest.raises(EngineError) as error:
        copy.check("policy")

    assert str(error.value) == snapshot("""\
`policy` sleeps: its weights are in host memory, or gone
help: wake its engine before it is run\
""")
