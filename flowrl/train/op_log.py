"""What a run writes of its ops: seconds, bytes and memory of each, step by step."""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TextIO

import attrs

from flowrl.config.tables.schema import LogTable
from flowrl.ir.graph import Graph, Node
from flowrl.ir.types import ModelType
from flowrl.ops.names import named_nodes
from flowrl.runtime.executor import Step
from flowrl.runtime.measures import Measured
from flowrl.train.folder import writing

OPS = "ops.jsonl"
RECENT = 100
"""Steps that a profile is fitted to, the newest: lengths change as a policy learns."""


class OpLog:
    """Writes a record for each op and step, and one of the whole step, whose `op` is empty.

    A record has `step`, `op` as plans print it, `kind`, `role` and `pool` of the op, and what was
    measured (`flowrl.runtime.measures.Measured`).

    Args:
        folder: of the run.
        graph: that runs.
        table: whether records are written.
    """

    def __init__(self, folder: Path, graph: Graph, table: LogTable) -> None:
        self.folder, self.closing = folder, ExitStack()
        self.file: TextIO | None = None
        with writing(folder):
            if table.jsonl:
                self.file = self.closing.enter_context((folder / OPS).open("w"))
        self.about = {name: _about(node) for name, node in named_nodes(graph)}
        self.recent: deque[Step] = deque(maxlen=RECENT)

    def write(self, step: int, done: Step) -> None:
        """Write what the ops of a step took, the `step`-th from 1.

        Raises:
            RunFileError: it can't be written.
        """
        self.recent.append(attrs.evolve(done, carry={}))
        if self.file is None:
            return
        with writing(self.folder):
            for record in self._records(done):
                self.file.write(json.dumps({"step": step, **record}) + "\n")
            self.file.flush()

    def _records(self, done: Step) -> Iterator[dict[str, Any]]:
        for name, its in done.ops.items():
            yield {"op": name, **self.about[name], **_numbers(its)}
        yield {"op": "", "kind": "step", "role": "", "pool": "", **_numbers(self._whole(done))}

    def _whole(self, done: Step) -> Measured:
        """Return what a step took in all; its memory is that of the ops that run models."""
        moved = sum(its.bytes for its in done.ops.values())
        models = [its.memory for name, its in done.ops.items() if self.about[name]["role"]]
        return Measured(1, done.elapsed, moved, max(models, default=0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with writing(self.folder):  # again what could not be written before
            self.closing.close()


def _about(node: Node) -> Mapping[str, str]:
    model = node.args[0].type if node.args else None
    role = model.role if isinstance(model, ModelType) else ""
    return {"kind": node.op.name, "role": role, "pool": node.pool}


def _numbers(its: Measured) -> dict[str, Any]:
    return {**attrs.asdict(its), "seconds": float(f"{its.seconds:.6g}")}
