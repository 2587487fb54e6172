"""What it takes to put a seat's bytes to sleep and to wake them."""

import attrs
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


def test_what_waits_on_the_host_in_any_case_does_not_move():
    its = target("8xH100")
    waiting = attrs.evolve(SEAT, waiting=10**12)

    assert waiting.host("offload") == 10**12 + 64 * 10**9
    assert waiting.total == SEAT.total
    assert wake_seconds(waiting, "offload", range(8), its) == wake_seconds(
        SEAT, "offload", range(8), its
    )
    assert wake_seconds(waiting, "resident", range(8), its) == 0


def test_the_base_of_an_adapter_goes_to_the_host_where_the_adapter_is_dropped():
    seat = attrs.evolve(SEAT, fixed=9 * 10**9)

    seconds = wake_seconds(seat, "drop", range(8), target("8xH100"))

    assert seconds == pytest.approx(0.02 + 9e9 / (0.85 * 64e9))
    assert seat.host("drop") == 9 * 10**9


@pytest.mark.parametrize("residency", ["resident", "drop", "alias"])
def test_nothing_else_goes_to_the_host(residency):
    assert wake_seconds(SEAT, residency, range(8), target("8xH100")) == 0
