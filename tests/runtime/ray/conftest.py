"""One Ray for the session, whose workers pass from test to test."""

import pytest
import ray

from flowrl.runtime.channels import Line
from flowrl.runtime.pools import PoolSize, RaySpec, started

WORKERS = 5


@pytest.fixture(scope="session")
def crew():
    """Start Ray and workers of no pool in particular."""
    ray.init(
        "local",
        num_cpus=4,
        num_gpus=8,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    with started(RaySpec((PoolSize("any", WORKERS, cpus=0.25),))) as pools:
        yield pools["any"]
    ray.shutdown()


@pytest.fixture
def pools(crew):
    """Return a function that makes pools of the session's workers, who forget what they had."""

    def pools(observe=None, **sizes):
        free = iter(crew)
        made = {
            name: [Line(next(free).actor, name, i, "here", observe=observe) for i in range(count)]
            for name, count in sizes.items()
        }
        ray.get([line.actor.do.remote("reset", ()) for lines in made.values() for line in lines])
        return made

    return pools
