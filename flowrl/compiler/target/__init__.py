"""What a plan is made for, as given: the work of a step, how roles run, speeds that are reached."""

from flowrl.compiler.target.lengths import Lengths
from flowrl.compiler.target.profile import Profile, Speeds
from flowrl.compiler.target.target import Target
from flowrl.compiler.target.workload import Offload, Reserve, Settings, Workload

__all__ = ["Lengths", "Offload", "Profile", "Reserve", "Settings", "Speeds", "Target", "Workload"]
