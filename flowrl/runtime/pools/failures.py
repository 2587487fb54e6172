"""What went wrong on a worker, told as the user needs it: op, pool, worker, source line."""

import traceback
from collections.abc import Callable
from pathlib import Path

from flowrl.errors import EngineError, FlowrlError
from flowrl.ir.graph import Node
from flowrl.ops.move import Reshard
from flowrl.runtime.graph.origins import SampleError
from flowrl.runtime.pools.lines import Line
from flowrl.runtime.ranks.edges import Edge


class Failure(Exception):
    """An error of a worker, on its way to the controller.

    Args:
        error: as the user is told it.
        node: which node of the segment failed; None outside of one.
    """

    def __init__(self, error: FlowrlError, node: int | None) -> None:
        super().__init__(error, node)
        self.error, self.node = error, node


class WorkerDied(Exception):
    """A worker is gone, and what it was told is not done."""


class SenderEndedError(EngineError):
    """A worker reads what another one has sent, which has ended since."""


RowOf = Callable[[SampleError], str]
"""Tells which row of the data a refused sample was made of; see `origins.row_of`."""


def unknown(error: SampleError) -> str:
    """Say nothing: an instruction that has no samples."""
    return ""


def told(error: Exception) -> FlowrlError:
    """Return an error of a worker as one that is told to users."""
    if isinstance(error, FlowrlError):
        return error
    last = traceback.extract_tb(error.__traceback__)[-1]
    return EngineError(
        f"{type(error).__name__}: {error}",
        hint=f"raised at {Path(last.filename).name}:{last.lineno}",
    )


def located(
    error: Exception, line: Line, nodes: tuple[Node, ...], row_of: RowOf = unknown
) -> FlowrlError:
    """Return what the controller raises when a call has failed.

    Args:
        error: what came instead of a reply.
        line: to the worker that failed.
        nodes: what it evaluated, with their places in the user's source.
        row_of: tells the row of a sample that an op refused.
    """
    if isinstance(error, Failure):
        if not nodes:  # no op: a row, a reward function or a model, which it names
            return error.error
        row = row_of(error.error) if isinstance(error.error, SampleError) else ""
        return _of_node(error.error, line, nodes[error.node or 0], row)
    node = nodes[0] if nodes else None
    doing = f" while it ran {_doing(node)}" if node else ""
    if isinstance(error, WorkerDied):
        return EngineError(
            f"{line} died{doing}",
            where=node.loc.excerpt() if node else "",
            hint="the kernel ends processes when memory runs out; look into its log, and into "
            "the worker's below Ray's session folder",
        )
    return EngineError(f"{line} failed{doing}: {type(error).__name__}: {error}")


def _doing(node: Node) -> str:
    """Return what an op is called; of a `reshard`, also the edge."""
    edge = f" of {Edge.of(node)}" if isinstance(node.op, Reshard) else ""
    return f"`{node.op.name}`{edge}"


def _of_node(error: FlowrlError, line: Line, node: Node, row: str) -> FlowrlError:
    name, where = f"{node.op.name}: ", error.where
    short, full = f"  {node.loc}", node.loc.excerpt()
    problem = error.problem if error.problem.startswith(name) else f"{name}{error.problem}"
    where = full if where in ("", short) else f"{where}\n{full}"
    where = f"{row}\n{where}" if row else where
    return error.told(problem, where=where, made=[f"  on {line}"])
