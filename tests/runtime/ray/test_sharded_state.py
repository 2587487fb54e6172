"""A state in shards goes on with any number of ranks, as if there had been no break."""

from collections import Counter

import pytest
from torch.distributed.checkpoint import FileSystemReader
from torch.testing import assert_close

from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.ranks.ranks import Fsdp2
from tests.runtime.ray.ranked import SMALL, Run

CHUNKS, REPLICAS, HOST = Fsdp2(), Fsdp2(replicas=2), Fsdp2(offload=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((2, CHUNKS), (2, CHUNKS)),
        ((4, REPLICAS), (4, REPLICAS)),
        ((2, CHUNKS), (4, REPLICAS)),
        ((4, CHUNKS), (1, None)),
        ((1, None), (2, HOST)),
        ((2, None), (2, CHUNKS)),
    ],
)
def test_ranks_go_on_where_others_stopped(before, after, on, model_folder, batch, tmp_path):
    spec, folder = ModelSpec(model_folder("llama"), dtype="float64"), str(tmp_path)
    (count, fsdp), (others, their) = before, after

    on(count, Run({"saves": folder}), spec, batch, fsdp)
    found = on(others, Run({"loads": folder}), spec, batch, their)

    straight = on(others, Run({"steps": 4}), spec, batch, their)[0]
    for each in found:
        for key in ("weights", "state", "outputs"):
            tolerance = 0 if before == after else 1e-10
            assert_close(each[key], straight[key], rtol=0, atol=tolerance)


def test_each_rank_writes_a_part_and_all_is_written_once(on, model_folder, batch, tmp_path):
    spec = ModelSpec(model_folder("llama"), dtype="float64")

    on(4, Run({"saves": str(tmp_path)}), spec, batch, REPLICAS)

    written = Counter()
    for part in FileSystemReader(tmp_path).read_metadata().storage_data.values():
        written[part.relative_path] += part.length
    assert written == {file.name: file.stat().st_size for file in tmp_path.glob("*.distcp")}
    assert len(written) == 4
    assert max(written.values()) < 0.4 * written.total()


def test_moments_that_wait_in_host_memory_are_in_the_state(on, model_folder, batch, tmp_path):
    spec, folder = ModelSpec(model_folder("llama"), dtype="float64"), str(tmp_path)
    options = SMALL | {"offload_optimizer": True}

    on(2, Run({"saves": folder, "options": options}), spec, batch, CHUNKS)
    found = on(2, Run({"loads": folder, "options": options}), spec, batch, CHUNKS)

    straight = on(2, Run({"steps": 4}), spec, batch, CHUNKS)
    assert_close(found[0]["state"], straight[0]["state"], rtol=0, atol=0)
