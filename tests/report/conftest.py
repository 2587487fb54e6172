"""The run files of examples/plan, planned."""

from pathlib import Path

from flowrl.config.planned import plan_run
from flowrl.config.run_file import load_run_file

EXAMPLES = Path(__file__).parents[2] / "examples" / "plan"


def example(name):
    return str(EXAMPLES / f"{name}.toml")


def planned(file, sets):
    return plan_run(load_run_file(file, sets))[1]
