"""Keys that are fine alone and not together. Every rule is a function from tables to problems."""

from collections.abc import Iterator

from flowrl.config.rules.adapters import adapters_fit
from flowrl.config.rules.engines import engines_fit
from flowrl.config.rules.evaluation import evaluation_fits
from flowrl.config.rules.optimizers import optimizers_fit
from flowrl.config.rules.pools import pools_fit
from flowrl.config.rules.rewards import rewards_fit
from flowrl.config.rules.roles import roles_fit
from flowrl.config.rules.workload import workload_fits
from flowrl.config.tables.schema import Tables
from flowrl.config.toml.structure import Problem

RULES = (
    adapters_fit,
    optimizers_fit,
    engines_fit,
    workload_fits,
    roles_fit,
    pools_fit,
    evaluation_fits,
    rewards_fit,
)


def contradictions(tables: Tables) -> Iterator[Problem]:
    """Yield every contradiction of a run file whose keys are valid one by one."""
    for rule in RULES:
        yield from rule(tables)
