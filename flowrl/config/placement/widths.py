"""How many bytes the numbers of a role take in a run."""

from collections.abc import Collection, Mapping

from flowrl.compiler.hardware import Machines
from flowrl.config.run_file import RunFile
from flowrl.ops.uses import Uses

BYTES = {"float32": 4, "bfloat16": 2, "float64": 8}
PRECISE = 4
"""Bytes of what is summed and stepped, at least."""


def widths(run: RunFile, its: Uses, *, narrow: bool) -> dict[str, int]:
    """Return the bytes of a weight and of what trains it, as `Settings` has them.

    A model that is only run forward in bfloat16 has float32 weights where it has not bfloat16 ones
    to the same bits, so that it gives the numbers of a trained copy: all, if it learns, else those
    that no linear layer has. Beside a trainer that computes with bfloat16 ones, it has those too.

    Args:
        run: the run file.
        its: the role, and what the program does with it.
        narrow: whether a trainer does so; see `narrow_trainer`.
    """
    weight = BYTES[run.roles[its.role].dtype]
    precise = max(PRECISE, weight)
    scores = not (its.trains or its.generates)
    return {
        "weight_bytes": precise if scores and its.learns else weight,
        "table_bytes": precise if scores and (its.learns or not narrow) else weight,
        "gradient_bytes": precise,
        "master_bytes": precise if weight < precise else 0,
        "moment_bytes": 2 * precise,
        "kv_bytes": weight,
    }


def narrow_trainer(run: RunFile, uses: Mapping[str, Uses], lending: Collection[str]) -> bool:
    """Whether a plan may let a trainer compute with an engine's own bfloat16 weights: on one GPU.

    Args:
        run: the run file, which names its machines.
        uses: of each role.
        lending: the roles whose engines lend their weights.
    """
    lent = (role for role, its in uses.items() if role in lending and its.generates)
    narrow = any(run.roles[role].dtype == "bfloat16" for role in lent)
    return narrow and Machines.parse(run.cluster.machines or "").size == 1
