"""vLLM in a process that does other things too."""

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest
from tqdm import tqdm

from flowrl.runtime.engines.vllm.process import import_vllm, quiet, without_bars

PROCESS = """
import sys
import weakref
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from flowrl.runtime.engines.vllm.process import import_vllm, own_world

def told():
    print("ours" if list(c10d._world.pg_map) == [ours] else len(c10d._world.pg_map))

def start():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

weakref.finalize(sys, told)  # made first, so called last
import_vllm()
start()
ours = dist.group.WORLD
with own_world():
    start()
    dist.new_group([0])
print(len(c10d._world.pg_map))
"""


needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="there is no vLLM here")


@needs_vllm
def test_a_process_ends_the_groups_of_vllm_and_no_others_as_it_ends():
    ran = subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["3", "ours"]


@needs_vllm
def test_a_start_shows_no_bar_of_cuda_graphs_and_others_stay(capsys):
    import_vllm()
    with quiet():
        graphs = import_module("vllm.v1.worker.gpu.cudagraph_utils")

    with without_bars():
        captured = list(graphs.tqdm([1, 2], desc="graphs"))
        list(tqdm([1, 2], desc="a user's"))
    during = capsys.readouterr().err
    list(graphs.tqdm([1, 2], desc="graphs"))

    assert captured == [1, 2]
    assert "graphs" not in during
    assert "a user's" in during
    assert "graphs" in capsys.readouterr().err
