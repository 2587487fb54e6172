"""A process among the workers of pools: which part of a graph is its own."""

from collections.abc import Mapping

import attrs

from flowrl.ir.graph import Value
from flowrl.ops.uses import Uses
from flowrl.runtime.ranks.edges import group_name, layout_of
from flowrl.runtime.ranks.ranks import ALONE, Ranks


@attrs.frozen
class Member:
    """A process among those that run a graph, by which it has its part of it.

    Attributes:
        pool: that of this pool; empty in a process that runs all of the graph, alone.
        lead: whether it has the pool's values.
        groups: its places among workers that do something together, by name; see `Group`.
    """

    pool: str = ""
    lead: bool = True
    groups: Mapping[str, Ranks] = attrs.field(factory=dict)

    @property
    def ranks(self) -> Ranks:
        """It and those that run the pool's models with it."""
        return self.groups.get(self.pool, ALONE)

    def replica(self, uses: Uses) -> Ranks:
        """Return it and those that sample from a model together."""
        nodes = (node for node in uses.sampling if self._has(node.pool))
        layout = layout_of(next(nodes).args[0])
        return self.groups.get(group_name(self.pool, layout), ALONE)

    def keeps(self, model: Value) -> bool:
        """Whether a model lives here between steps."""
        return self.lead and self._has(model.pool)

    def samples(self, uses: Uses) -> bool:
        """Whether a role is sampled from here."""
        return any(self._has(node.pool) for node in uses.sampling)

    def _has(self, pool: str) -> bool:
        """Whether what is placed in a pool is done here."""
        return self.pool in ("", pool)
