"""What it takes to put a seat's bytes to sleep and to wake them."""

import pytest

from flowrl.compiler.cost.memory import Memory
from flowrl.compiler.cost.residency import sleep_seconds, wake_seconds
from tests.compiler.cost.targets import target

SEAT = Memory(weights=10 * 10**9, optimizer=54 * 10**9, kv_cache=10**12, engine=10**9)


def test_offloaded_bytes_come_back_over_pcie():
    seconds = wake_seconds(SEAT, "offload", range(8), target("8xH100"))

    assert seconds == pytest.approx(0.02 + 64e9 / (0.85 * 64e9))


def test_bytes_that_did_not_change_are_on_the_host_already():
    its = target("8xH100")

    assert sleep_seconds(SEAT, "offload", range(8), its, changed=False) == 0
    assert sleep_seconds(SEAT, "offload", range(8), its, changed=True) == wake_seconds(
        SEAT, "offload", range(8), its
    )


@pytest.mark.parametrize("residency", ["resident", "drop", "alias"])
def test_nothing_else_goes_to_the_host(residency):
    assert wake_seconds(SEAT, residency, range(8), target("8xH100")) == 0
