"""Where metrics go: a JSONL file and TensorBoard."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from flowrl.config.schema import LogTable


class MetricLog:
    """Writes one record a step, as `[log]` says."""

    def __init__(self, folder: Path, table: LogTable) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = (folder / "metrics.jsonl").open("w") if table.jsonl else None
        self.board: Any = None
        if table.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(folder / "tensorboard"))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics after `step` steps."""
        if self.file:
            rounded = {name: float(f"{value:.6g}") for name, value in metrics.items()}
            self.file.write(json.dumps({"step": step, **rounded}) + "\n")
            self.file.flush()
        if self.board:
            for name, value in metrics.items():
                self.board.add_scalar(name, value, step)

    def close(self) -> None:
        """Finish both files."""
        if self.file:
            self.file.close()
        if self.board:
            self.board.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
