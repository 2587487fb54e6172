"""Advantages within groups need groups."""

from collections.abc import Iterator, Mapping

from flowrl.errors import ProgramError
from flowrl.ir.graph import Graph, Node, Op, Value
from flowrl.ops.model import Generate
from flowrl.ops.tensor import TensorOp


def check_groups(graph: Graph) -> None:
    """Refuse advantages within groups of one sample: all would be 0, and nothing learned.

    Raises:
        ProgramError: naming the op and where the samples are drawn.
    """
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
