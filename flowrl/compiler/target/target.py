"""What a plan is made for: machines, models, and the work of a step."""

from collections.abc import Mapping

import attrs

from flowrl.compiler.hardware import Machines
from flowrl.compiler.shapes import ModelShape
from flowrl.compiler.target.profile import Profile
from flowrl.compiler.target.workload import Workload


@attrs.frozen
class Target:
    """What the planner is given besides the program.

    Attributes:
        machines: the GPUs.
        shapes: the model of each role.
        workload: the work of a step, and how roles run.
        profile: how near engines come to the hardware's speeds.
    """

    machines: Machines
    shapes: Mapping[str, ModelShape]
    workload: Workload = attrs.field(factory=Workload)
    profile: Profile = attrs.field(factory=Profile)
