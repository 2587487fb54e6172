"""Ways: what one worker does on each edge that weights take."""

from itertools import count

import attrs

from flowrl.runtime.ranks.edges import Edge
from flowrl.runtime.ranks.ranks import Ranks
from flowrl.runtime.reshard import Checks, Move, Sent, Tensors, Wire, compare, reshard


@attrs.frozen
class Leg:
    """What one rank does on an edge, as planned.

    Attributes:
        move: what it sends, receives and copies.
        checks: what it compares afterwards.
    """

    move: Move
    checks: Checks


@attrs.frozen(eq=False)
class Way:
    """An edge as one worker takes it.

    Attributes:
        edge: which.
        leg: what it does there.
        wire: how weights travel.
        ranks: it and the others there.
        check_every: how often weights are compared: each time at 1, never at 0.
    """

    edge: Edge
    leg: Leg
    wire: Wire
    ranks: Ranks
    check_every: int = 1
    _times: "count[int]" = attrs.field(factory=count, init=False)

    @property
    def arrives(self) -> bool:
        """Whether weights arrive at this worker."""
        return bool(self.leg.move.needed)

    def take(self, held: Tensors, needed: Tensors) -> Sent:
        """Bring weights into the layout at the edge's end; all of its workers do so together.

        Args:
            held: what this worker has at its start, by name.
            needed: what is written at its end, by name.

        Raises:
            EngineError: a rank died or did not come, or weights are not what was sent.
        """
        with self.ranks.together(f"bringing {self.edge}"):
            sent = reshard(self.leg.move, held, needed, self.wire)
            if self.check_every and next(self._times) % self.check_every == 0:
                compare(self.leg.checks, held, needed, self.wire, self.ranks.called)
        return sent
