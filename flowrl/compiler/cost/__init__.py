"""What tasks cost: seconds and bytes, by roofline terms over the lengths of sequences."""

from flowrl.compiler.cost.lengths import Lengths
from flowrl.compiler.cost.profile import Profile, Speeds
from flowrl.compiler.cost.workload import Settings, Workload

__all__ = ["Lengths", "Profile", "Settings", "Speeds", "Workload"]
