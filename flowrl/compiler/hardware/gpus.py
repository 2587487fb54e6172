"""What one GPU can do, by its data sheet."""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

MIB = 2**20
GIGA = 1e9
TERA = 1e12


@attrs.frozen
class GPU:
    """One GPU; every rate is in one direction.

    Attributes:
        name: as run files and `--cluster` write it.
        memory_bytes: as `nvidia-smi` shows it; data sheets round.
        bf16_flops: dense bfloat16 operations a second, accumulated in float32.
        hbm_bytes_per_s: its memory's bandwidth.
        nvlink_bytes_per_s: to all its peers in a node together; 0 without NVLink.
        pcie_bytes_per_s: to the host.
        network_bytes_per_s: its share of the usual node's network.
        source: the data sheet.
    """

    name: str
    memory_bytes: int
    bf16_flops: float
    hbm_bytes_per_s: float
    nvlink_bytes_per_s: float
    pcie_bytes_per_s: float
    network_bytes_per_s: float
    source: str = ""

    @property
    def usable_bytes(self) -> int:
        """What a plan may fill, 95%: gaps of the allocator and errors of the model take the rest.

        Of runs on an H200, the model's figures were within 5% of what was taken (docs/compiler.md).
        """
        return self.memory_bytes * 19 // 20

    @property
    def peer_link(self) -> str:
        """What joins it to another GPU of the node: `nvlink`, or `pcie` where there is none."""
        return "nvlink" if self.nvlink_bytes_per_s else "pcie"

    @property
    def peer_bytes_per_s(self) -> float:
        """To another GPU of the node, over `peer_link`."""
        return self.nvlink_bytes_per_s or self.pcie_bytes_per_s


_TABLE = (
    GPU(
        "A100-40G",
        memory_bytes=40_960 * MIB,
        bf16_flops=312 * TERA,
        hbm_bytes_per_s=1_555 * GIGA,
        nvlink_bytes_per_s=300 * GIGA,
        pcie_bytes_per_s=32 * GIGA,
        network_bytes_per_s=25 * GIGA,  # DGX A100: 200 Gb/s a GPU
        source="https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
        "nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf",
    ),
    GPU(
        "A100-80G",
        memory_bytes=81_920 * MIB,
        bf16_flops=312 * TERA,
        hbm_bytes_per_s=2_039 * GIGA,
        nvlink_bytes_per_s=300 * GIGA,
        pcie_bytes_per_s=32 * GIGA,
        network_bytes_per_s=25 * GIGA,
        source="https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
        "nvidia-a100-datasheet-nvidia-us-2188504-web.pdf",
    ),
    GPU(
        "H100",
        memory_bytes=81_559 * MIB,
        bf16_flops=989 * TERA,
        hbm_bytes_per_s=3_350 * GIGA,
        nvlink_bytes_per_s=450 * GIGA,
        pcie_bytes_per_s=64 * GIGA,
        network_bytes_per_s=50 * GIGA,  # DGX H100: 400 Gb/s a GPU
        source="https://www.nvidia.com/en-us/data-center/h100/",
    ),
    GPU(
        "H200",
        memory_bytes=143_771 * MIB,
        bf16_flops=989 * TERA,
        hbm_bytes_per_s=4_800 * GIGA,
        nvlink_bytes_per_s=450 * GIGA,
        pcie_bytes_per_s=64 * GIGA,
        network_bytes_per_s=50 * GIGA,
        source="https://www.nvidia.com/en-us/data-center/h200/",
    ),
    GPU(
        "B200",
        memory_bytes=183_359 * MIB,
        bf16_flops=2_250 * TERA,
        hbm_bytes_per_s=8_000 * GIGA,
        nvlink_bytes_per_s=900 * GIGA,
        pcie_bytes_per_s=64 * GIGA,
        network_bytes_per_s=50 * GIGA,
        source="https://www.nvidia.com/en-us/data-center/hgx/",
    ),
    GPU(
        "L40S",
        memory_bytes=46_068 * MIB,
        bf16_flops=362 * TERA,
        hbm_bytes_per_s=864 * GIGA,
        nvlink_bytes_per_s=0,
        pcie_bytes_per_s=32 * GIGA,
        network_bytes_per_s=12.5 * GIGA,  # 100 Gb/s a GPU
        source="https://www.nvidia.com/en-us/data-center/l40s/",
    ),
    GPU(
        "A10",
        memory_bytes=23_028 * MIB,
        bf16_flops=125 * TERA,
        hbm_bytes_per_s=600 * GIGA,
        nvlink_bytes_per_s=0,
        pcie_bytes_per_s=32 * GIGA,
        network_bytes_per_s=1.5625 * GIGA,  # 100 Gb/s for 8 GPUs
        source="https://www.nvidia.com/en-us/data-center/products/a10-gpu/",
    ),
    GPU(
        "RTX4090",
        memory_bytes=24_564 * MIB,
        bf16_flops=165.2 * TERA,
        hbm_bytes_per_s=1_008 * GIGA,
        nvlink_bytes_per_s=0,
        pcie_bytes_per_s=32 * GIGA,
        network_bytes_per_s=1.25 * GIGA,  # 10 Gb/s a GPU
        source="https://images.nvidia.com/aem-dam/Solutions/geforce/ada/"
        "nvidia-ada-gpu-architecture.pdf",
    ),
    GPU(
        "CPU",
        memory_bytes=16_384 * MIB,
        bf16_flops=0.1 * TERA,
        hbm_bytes_per_s=20 * GIGA,
        nvlink_bytes_per_s=0,
        pcie_bytes_per_s=10 * GIGA,
        network_bytes_per_s=1.25 * GIGA,
        source="nominal: two cores of a desktop, whose own speeds `flowrl profile` finds out",
    ),
)

GPUS: Mapping[str, GPU] = MappingProxyType({gpu.name: gpu for gpu in _TABLE})
"""The GPUs that run files can name, and `CPU`: what a run without a GPU is planned on."""
