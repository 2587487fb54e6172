"""Ops evaluated on two prompts of two samples and one, of two, one and three tokens."""

import torch

from flowrl.functional.ragged import Ragged
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.records import flatten
from flowrl.ir.trace import building, located
from flowrl.ir.verify import verify
from flowrl.runtime.graph.interpret import Interpreter
from flowrl.runtime.host import Host
from flowrl.runtime.rows.rows import Row
from tests.graphs import HERE, begin

SAMPLES, TOKENS = torch.tensor([2, 1]), torch.tensor([2, 1, 3])
ROWS = (Row(0, "data:0", ""), Row(1, "data:1", ""))
NUMBERS = {
    "x0": torch.tensor(0.5),
    "x1": Ragged(torch.tensor([1.0, -2.0])),
    "x2": Ragged(torch.tensor([1.0, 3.0, 5.0]), (SAMPLES,)),
    "x3": Ragged(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), (SAMPLES, TOKENS)),
}
ROLLOUTS = {
    "rows": ROWS,
    "context": Ragged(torch.ones(2, dtype=torch.int64), (torch.ones(2, dtype=torch.int64),)),
    "tokens": Ragged(torch.arange(6), (SAMPLES, TOKENS)),
    "logprobs": NUMBERS["x3"].replace(-NUMBERS["x3"].values),
    "mask": NUMBERS["x3"].replace(torch.tensor([True, False, True, True, True, True])),
    "truncated": NUMBERS["x2"].replace(torch.tensor([True, False, False])),
    "version": NUMBERS["x2"].replace(torch.tensor([0, 0, 0])),
    **dict.fromkeys(("policy", "critic", "reference")),
}


def evaluate(program):
    """Return what `program(x, rollouts)` gives, where `x[n]` has n axes: plain lists, or a number.

    The result is one value or a tree of them; each is given by its packed elements.
    """
    builder = GraphBuilder("evaluated")
    with building(builder), located(HERE):
        made = begin(builder)
        leaves, unflatten = flatten(program(made.tensors, made.rollouts))
    graph = verify(builder.finish([(str(i), leaf) for i, leaf in enumerate(leaves)]))
    given = NUMBERS | ROLLOUTS
    results = Interpreter(Host()).run(graph, [given[name] for name, _ in graph.inputs])
    return unflatten([plain(result) for result in results])


def plain(result):
    """Return packed elements, or rows of data by number, as a list."""
    if isinstance(result, Ragged):
        return result.values.tolist()
    return result.item() if isinstance(result, torch.Tensor) else [row.id for row in result]
