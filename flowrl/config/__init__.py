"""The run file: what a run is, in one TOML file."""

from flowrl.config.checks.batches import batch_sentence, check_batches
from flowrl.config.run_file import RunFile, load_run_file
from flowrl.config.tables.hyperparameters import check_hyperparameters

__all__ = ["RunFile", "batch_sentence", "check_batches", "check_hyperparameters", "load_run_file"]
