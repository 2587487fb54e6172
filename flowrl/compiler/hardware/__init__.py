"""GPUs and the machines that they stand in, as data."""

from flowrl.compiler.hardware.gpus import GPU, GPUS
from flowrl.compiler.hardware.machines import Machines, Node

__all__ = ["GPU", "GPUS", "Machines", "Node"]
