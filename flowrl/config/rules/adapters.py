"""What a run file says of adapters."""

from collections.abc import Iterator

from flowrl.config.tables.schema import Tables
from flowrl.config.toml.structure import Problem


def adapters_fit(tables: Tables) -> Iterator[Problem]:
    """Yield dropout, and adapters of no layer."""
    for role in tables.adapted:
        lora, path = tables.models[role].lora, ("models", role, "lora")
        if lora and lora.dropout:
            yield Problem(
                (*path, "dropout"),
                f"`models.{role}.lora.dropout` must be 0; got {lora.dropout}",
                hint="with dropout a policy's ratio to itself would not be 1, and a gradient would "
                "depend on how rows are divided",
            )
        if lora and not lora.targets:
            yield Problem(
                (*path, "targets"),
                f"`models.{role}.lora.targets` names no layer",
                hint='"all-linear" takes all linear layers but heads',
            )
