"""The reference interpreter: one process, no pools. It says what a graph means."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from flowrl.errors import EngineError, FlowrlError
from flowrl.ir.graph import Graph, Node, Op
from flowrl.ops import buffer, data, model, move
from flowrl.ops.division import Microbatches, Minibatches
from flowrl.ops.tensor import Constant, TensorOp
from flowrl.runtime.graph import carry, division, loops, perform, tensors
from flowrl.runtime.graph.origins import SampleError, named
from flowrl.runtime.graph.reported import is_empty
from flowrl.runtime.host import Host, Path
from flowrl.runtime.measures import Measures
from flowrl.runtime.out_of_memory import out_of_memory_told
from flowrl.runtime.rows import selection
from flowrl.runtime.rows.rows import fields


class Interpreter:
    """Evaluates graphs on a host.

    Args:
        host: models, rewards, data and seeds.
        measures: of the graph whose nodes are measured.
        reported: nodes that give NaN of no numbers; see `flowrl.runtime.graph.reported`.
    """

    def __init__(
        self,
        host: Host,
        measures: Measures | None = None,
        reported: Collection[Node] = frozenset(),
    ) -> None:
        self.host, self.measures, self.reported = host, measures or Measures(), reported

    def run(self, graph: Graph, inputs: Sequence[Any], path: Path = ()) -> list[Any]:
        """Return the outputs of `graph` on `inputs`.

        Args:
            graph: any graph, lowered or not.
            inputs: for each of its inputs, a `Ragged`, a scalar tensor, rows or a model's handle.
            path: the turns and rounds of the loops around the graph.

        Raises:
            FlowrlError: an op failed; it names the op and the line.
        """
        env = {value: x for (_, value), x in zip(graph.inputs, inputs, strict=True)}
        for node in graph.nodes:
            try:
                results = self.evaluate(node, [env[arg] for arg in node.args], path)
            except SampleError as error:
                raise named(error, env) from error
            env.update(zip(node.results, results, strict=True))
        return [env[value] for _, value in graph.outputs]

    def evaluate(self, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
        """Return the results of one node."""
        try:
            with out_of_memory_told():
                if isinstance(node.op, model.ModelOp):
                    self.host.take(node, args[0])
                with self.measures.of(node):
                    return EVALUATE[type(node.op)](self, node, args, path)
        except FlowrlError as error:
            if error.where:
                raise
            problem, where = f"{node.op.name}: {error.problem}", node.loc.excerpt()
            raise type(error)(problem, where=where, hint=error.hint) from error
        except Exception as error:  # ours or an engine's: the traceback ends in the user's line
            if not hasattr(error, "__notes__"):
                error.add_note(f"in {node.op.name}\n{node.loc.excerpt()}")
            raise

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return `function(*args)`."""
        return function(*args)

    def number(self, function: Callable[[Any], int], value: Any) -> int:
        """Return a number about a value."""
        return function(value)

    def words(self, function: Callable[[Any], str], value: Any) -> str:
        """Return a few words about a value."""
        return function(value)

    def place(self, node: Node) -> str:
        """Return the lines of the user's source that made a node."""
        return node.loc.excerpt()

    def draw(self, source: str, count: int) -> dict[str, Any]:
        """Return the fields of the next rows of a data input, by name.

        Raises:
            EngineError: there is no such input.
        """
        if source not in self.host.cursors:
            raise EngineError(f"there is no data to draw more of `{source}` from")
        return fields(self.host.cursors[source].take(count), "prompts")


def _constant(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    assert isinstance(node.op, Constant)
    return (torch.tensor(node.op.value),)


def _tensor(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    op = node.op
    assert isinstance(op, TensorOp)
    if node in it.reported and is_empty(args[0]):
        return [torch.tensor(torch.nan) for _ in node.results]
    draw = dict(op.params).get("seed")  # the number of its draw, as other ops that draw have one
    if draw is not None and op.user is None:
        op = op.replace(seed=it.host.seed_of(draw, *path))
    return tensors.evaluate(op, args, node)


def _transfer(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    return args


def _select(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    return (selection.select(args[0], node.args[0].axes),)


def _take(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    return (selection.take(args[0], args[1], node.args[1].axes),)


def _append(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    assert isinstance(node.op, buffer.Append)
    earlier, later = args
    return (carry.append(earlier, later, node.op.capacity, node.args[1].axes),)


def _align(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    return (selection.align(args[0], args[1], args[2], node.args[0].axes),)


def _minibatches(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    op = node.op
    assert isinstance(op, Minibatches)
    seed = it.host.seed_of(op.number, *path)
    return (division.minibatches(op, seed, node.args[0].axes, *args),)


def _microbatches(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    return (division.microbatches(node, *args),)


Evaluate = Callable[[Interpreter, Node, list[Any], Path], Sequence[Any]]

EVALUATE: Mapping[type[Op], Evaluate] = {
    Constant: _constant,
    TensorOp: _tensor,
    move.Transfer: _transfer,
    move.Reshard: _transfer,
    data.Select: _select,
    data.Take: _take,
    data.Align: _align,
    buffer.Append: _append,
    model.Generate: perform.generate,
    model.Logprobs: perform.forward,
    model.Collision: perform.forward,
    model.Values: perform.forward,
    model.BootstrapValues: perform.bootstrap,
    model.Rewards: perform.forward,
    model.Score: perform.score,
    model.Update: perform.update,
    model.Snapshot: perform.snapshot,
    model.Base: perform.base,
    model.Ema: perform.ema,
    Minibatches: _minibatches,
    Microbatches: _microbatches,
    **loops.CONTROL,
}
"""What each op means. A new kind of op needs one line here; a new tensor op needs none."""
