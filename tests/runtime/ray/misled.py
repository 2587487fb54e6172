"""A line over which one worker is told something else than the others."""

import attrs

from flowrl.runtime.pools.channels import RayLine


@attrs.define(eq=False)
class Misled(RayLine):
    """A line that changes what it is given to send.

    Attributes:
        mislead: returns another method, dead values and arguments than it is given.
    """

    mislead: object = attrs.field(kw_only=True)

    @classmethod
    def of(cls, line, mislead):
        """Return a line to the same worker."""
        return cls(**attrs.asdict(line, recurse=False), mislead=mislead)

    def send(self, method, dead, args, replies):
        """Send what comes of it."""
        return super().send(*self.mislead(method, dead, args), replies)
