"""What a program and an evaluation ask of the engines that sample, held against these."""

from collections.abc import Iterator

import attrs

from flowrl.config.rules.engines import another_temperature
from flowrl.config.run_file import RunFile
from flowrl.errors import RunFileError
from flowrl.ir.graph import Graph, Node
from flowrl.ir.types import ModelType
from flowrl.ops.model import Generate
from flowrl.ops.uses import tokenizing_role


@attrs.frozen
class Room:
    """The tokens of a prompt and its completion that an engine is started for.

    Attributes:
        key: that says how many, dotted.
        length: of both.
        completion: most tokens of a completion.
    """

    key: str
    length: int
    completion: int

    @property
    def prompt(self) -> int:
        """Most tokens of a prompt."""
        return self.length - self.completion

    def __str__(self) -> str:
        leaves = f"leaves {self.prompt} beside {self.completion} of a completion"
        return f"`{self.key}` = {self.length} {leaves}"


def check_sampled(run: RunFile, graph: Graph) -> None:
    """Check that engines sample at the temperatures, and have room for the completions.

    Of a program, and of `[eval]`.

    Raises:
        RunFileError: naming the line of the program, or the key.
    """
    for role, op, node in _asked(graph):
        _check_temperature(run, role, op.temperature, node.loc.excerpt())
    if run.eval:
        where, role = run.where("eval.temperature"), tokenizing_role(graph)
        _check_temperature(run, role, run.eval.temperature, where)
    rooms = room_of(run, graph), held_out_room(run, tokenizing_role(graph))
    for room in rooms:
        if room and room.prompt < 1:
            raise RunFileError(
                f"`{room.key}` = {room.length} leaves no room for a prompt beside a completion of "
                f"{room.completion}",
                where=run.where(room.key),
                hint="raise it, or sample fewer tokens",
            )


def _asked(graph: Graph) -> Iterator[tuple[str, Generate, Node]]:
    """Yield each op that samples, with its role and its node."""
    for node in graph.walk():
        if isinstance(node.op, Generate) and isinstance(model := node.args[0].type, ModelType):
            yield model.role, node.op, node


def _check_temperature(run: RunFile, role: str, temperature: float, where: str) -> None:
    table = run.engines.role(role).generate
    if not table.facts.samples_at(temperature):
        raise RunFileError(
            f'`engines.{role}.generate.engine` = "{table.engine}" samples at {table.facts.range}; '
            f"got {temperature:g}",
            where=where,
            hint=another_temperature(table.engine),
        )


def room_of(run: RunFile, graph: Graph) -> Room | None:
    """Return the least room that an engine has for a program's prompts; None if no key says so."""
    rooms = [_room(run, role, op.max_tokens) for role, op, _ in _asked(graph)]
    return min((room for room in rooms if room), key=lambda room: room.prompt, default=None)


def held_out_room(run: RunFile, role: str) -> Room | None:
    """Return the room for held-out prompts of the engine that samples from a role."""
    return _room(run, role, run.eval.max_tokens if run.eval else None)


def _room(run: RunFile, role: str, completion: int | None) -> Room | None:
    table = run.engines.role(role).generate
    if table.vllm is None or table.vllm.max_model_len is None:
        return None
    key = f"engines.{role}.generate.vllm.max_model_len"
    return Room(key, table.vllm.max_model_len, completion or table.max_tokens)
