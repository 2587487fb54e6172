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
        pool: that of this pool.
        lead: whether it has the pool's values.
        groups: its places among workers that do something together, by name; see `Group`.
    """

    pool: str
    lead: bool
    groups: Mapping[str, Ranks] = attrs.field(factory=dict)

    @property
    def ranks(self) -> Ranks:
        """It and those that run the pool's models with it."""
        return self.groups.get(self.pool, ALONE)

    def replica(self, uses: Uses) -> Ranks:
        """Return it and those that sample from a model together."""
        nodes = (node for node in uses.sampling if node.pool == self.pool)
        layout = layout_of(next(nodes).args[0])
        return self.groups.get(group_name(self.pool, layout), ALONE)

    def keeps(self, model: Value) -> bool:
        """Whether a model lives here between steps."""
        return self.lead and model.pool == self.pool

    def samples(self, uses: Uses) -> bool:
        """Whether a role is sampled from here."""
        return any(node.pool == self.pool for node in uses.sampling)
