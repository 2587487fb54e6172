"""What a plan is made for: machines, models, and the work of a step."""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from flowrl.compiler.hardware import Machines
from flowrl.compiler.shapes import AdapterShape, ModelShape
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
        adapters: of the roles that are trained by one.
    """

    machines: Machines
    shapes: Mapping[str, ModelShape]
    workload: Workload = attrs.field(factory=Workload)
    profile: Profile = attrs.field(factory=Profile)
    adapters: Mapping[str, AdapterShape] = MappingProxyType({})

    def trained(self, role: str) -> ModelShape:
        """Return what an update of a role changes, and is sent after it: all, or an adapter."""
        return self.adapters.get(role, self.shapes[role])
