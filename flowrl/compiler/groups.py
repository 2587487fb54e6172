"""What compares the samples of a prompt needs whole groups of them."""

from collections.abc import Iterator, Mapping

from flowrl.errors import ProgramError
from flowrl.ir.graph import Graph, Node, Op, Value
from flowrl.ir.types import Axis
from flowrl.ops.data import Select
from flowrl.ops.division import Division
from flowrl.ops.model import Generate
from flowrl.ops.tensor import Per, TensorOp


def check_groups(graph: Graph) -> None:
    """Refuse what compares the samples of a prompt where groups aren't whole, or of one sample.

    Advantages within groups of one would all be 0, and nothing learned.

    Raises:
        ProgramError: naming the op, and where the samples are drawn or divided.
    """
    _check_whole(graph)
    for inner in graph.nested():
        made_by = {value: node for node in inner.nodes for value in node.results}
        for node in inner.nodes:
            draws = list(_draws(node, made_by)) if _compares_samples(node.op) else []
            if draws and all(n == 1 for n, _ in draws):
                raise ProgramError(
                    f"{node.op.name}: compares the samples of a prompt, and there is one sample a "
                    "prompt: every advantage would be 0",
                    where=node.loc.excerpt(),
                    made=["the samples are drawn here:", draws[0][1].loc.excerpt()],
                    hint="draw several: `ops.generate(policy, prompts, n=8)`",
                )


def _check_whole(graph: Graph) -> None:
    cut = _cut_axes(graph)
    for node in graph.walk() if cut else ():
        axes = [axis for arg in node.args for axis in arg.axes if axis in cut]
        per_group = isinstance(node.op, TensorOp) and node.op.per is Per.GROUP
        if axes and (per_group or _compares_samples(node.op)):
            raise ProgramError(
                f"{node.op.name}: compares the samples of a prompt, which are divided here: each "
                "part would be taken for the whole group",
                where=node.loc.excerpt(),
                made=["they are divided here:", cut[axes[0]].loc.excerpt()],
                hint="compute it before, and put it in the record; or keep groups whole: "
                '`by="group"`',
            )


def _cut_axes(graph: Graph) -> dict[Axis, Node]:
    """Return the axes of samples whose groups a division has cut, with that division."""
    cut: dict[Axis, Node] = {}
    for node in graph.walk():
        op = node.op
        if isinstance(op, Division) and op.by == "sequence":
            cut |= {new: node for _, new in op.axes if new.name == "sample"}
        elif isinstance(op, Division | Select):
            cut |= {new: cut[old] for old, new in op.axes if old in cut}
    return cut


def _compares_samples(op: Op) -> bool:
    """Whether the op's type rule names `sample` in what it gives: it needs whole groups.

    What users' ops do with a group of one is theirs to say.
    """
    if not isinstance(op, TensorOp) or op.code:
        return False
    return any("sample" in result.names for result in op.signature.results)


def _draws(node: Node, made_by: Mapping[Value, Node]) -> Iterator[tuple[int, Node]]:
    """Yield the samples a prompt, and the op, of each draw that a node depends on."""
    seen, open_nodes = {node}, [node]
    while open_nodes:
        each = open_nodes.pop()
        inner = [n for region in each.op.regions().values() for n in region.walk()]
        for found in (each, *inner):
            if isinstance(found.op, Generate):
                yield found.op.n, found
        before = {made_by[arg] for arg in each.args if arg in made_by} - seen
        seen |= before
        open_nodes += before
