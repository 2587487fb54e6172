"""Machines are read from a line of text, and say how fast bytes go between any two GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.compiler.hardware import GPUS, Machines, Node
from flowrl.errors import RunFileError

MIXED = Machines.parse("8xH100 + 2x4xA100-80G")

nodes = st.builds(Node, st.sampled_from(list(GPUS.values())), st.integers(1, 8))


@given(st.lists(nodes, min_size=1, max_size=6))
def test_the_text_of_machines_gives_the_same_machines(several):
    machines = Machines(tuple(several))

    assert Machines.parse(str(machines)) == machines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("H100", "1xH100"),
        ("8xh100", "8xH100"),
        ("2 x 8 x H100", "2x8xH100"),
        ("8xH100+8xH100", "2x8xH100"),
        ("1xA10 + 2x4xL40S", "1xA10 + 2x4xL40S"),
    ],
)
def test_ways_to_write_machines(text, shown):
    assert str(Machines.parse(text)) == shown


def test_ranks_count_gpus_node_by_node():
    assert MIXED.size == 16
    assert [MIXED.node(rank) for rank in (0, 7, 8, 11, 12, 15)] == [0, 0, 1, 1, 2, 2]
    assert MIXED.gpu(7).name == "H100"
    assert MIXED.gpu(8).name == "A100-80G"
    assert MIXED.ranks(2) == range(12, 16)


def test_bytes_go_by_nvlink_in_a_node_and_by_the_slower_network_between_nodes():
    assert MIXED.bandwidth(0, 7) == 450e9
    assert MIXED.bandwidth(8, 11) == 300e9
    assert MIXED.bandwidth(0, 8) == 25e9
    assert MIXED.bandwidth(3, 3) == 3_350e9 / 2
    assert Machines.parse("2xL40S").bandwidth(0, 1) == 32e9
    assert MIXED.latency(0, 0) < MIXED.latency(0, 1) < MIXED.latency(0, 8)


@given(st.lists(nodes, min_size=1, max_size=4), st.data())
def test_links_are_the_same_both_ways(several, data):
    machines = Machines(tuple(several))
    a, b = (data.draw(st.integers(0, machines.size - 1)) for _ in "ab")

    assert machines.bandwidth(a, b) == machines.bandwidth(b, a)
    assert machines.latency(a, b) == machines.latency(b, a)


def test_a_node_has_the_usual_host_unless_it_is_given():
    assert Node(GPUS["H100"], 4).network_share == 50e9
    assert Node(GPUS["H100"], 4, network_bytes_per_s=100e9).network_share == 25e9
    assert Node(GPUS["H100"], 4).host_memory_bytes == 4 * 128 * 2**30


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "8xA100",
            snapshot("""\
unknown GPU `A100` in `8xA100` (did you mean `A100-40G` or `A100-80G`?)
help: known are {GPUS}\
"""),
        ),
        (
            "8xH10",
            snapshot("""\
unknown GPU `H10` in `8xH10` (did you mean `H100`?)
help: known are {GPUS}\
"""),
        ),
        (
            "H100x8",
            snapshot("""\
unknown GPU `H100x8` in `H100x8` (did you mean `H100`?)
help: known are {GPUS}\
"""),
        ),
        (
            "8xH100 +",
            snapshot("""\
`8xH100 +` is not a list of machines: got `` in it
help: write GPUs a node and their kind, `8xH100`; several nodes `2x8xH100`; kinds joined by `+`\
"""),
        ),
        (
            "0xH100",
            snapshot("""\
`0xH100` in `0xH100` is zero machines
help: write GPUs a node and their kind, `8xH100`; several nodes `2x8xH100`; kinds joined by `+`\
"""),
        ),
    ],
)
def test_a_text_that_is_no_list_of_machines_is_refused(text, message):
    with pytest.raises(RunFileError) as error:
        Machines.parse(text)

    assert str(error.value).replace(", ".join(GPUS), "{GPUS}") == message


@pytest.mark.parametrize("text", ["1000000xH100", "8xA10 + 999999999999x8xH100"])
def test_more_gpus_than_a_search_ends_for_are_refused(text):
    with pytest.raises(RunFileError, match="plans are made for 16384 of a kind at most"):
        Machines.parse(text)


def test_data_sheets_are_named_and_their_numbers_in_range():
    for gpu in (gpu for name, gpu in GPUS.items() if name != "CPU"):
        assert gpu.source.startswith("https://")
        assert 1e14 < gpu.bf16_flops < 3e15
        assert gpu.pcie_bytes_per_s < gpu.hbm_bytes_per_s
        assert 20e9 < gpu.memory_bytes < 200e9


def test_a_cpu_is_planned_on_as_a_gpu_with_nominal_numbers():
    assert str(Machines.parse("1xcpu")) == "1xCPU"
    assert GPUS["CPU"].source.startswith("nominal")
