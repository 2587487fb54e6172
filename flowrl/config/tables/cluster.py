"""The tables of a run file that say where it runs: `[cluster]` and its pools."""

from typing import Literal

import attrs

from flowrl.config.toml.types import AboveZero, Count, Positive

MAIN = "main"
"""The pool of a run file that has none."""


@attrs.frozen
class PoolSpec:
    """GPUs that act as one."""

    gpus: Count = 0
    """Number of GPUs; 0 is the CPU."""
    roles: tuple[str, ...] = ()
    """What runs there: a role, `role.generate`, `role.train`, the name of a reward that a model
    gives, `data` or `reward`."""
    workers: Positive = 1
    """Worker processes: one or several a GPU; any number in a pool without GPUs. All of them
    sample."""
    cpus: AboveZero = 0.5
    """CPUs that Ray sets aside for each worker."""
    layouts: dict[str, str] = attrs.field(factory=dict)
    """How weights lie over its workers, by role or quoted `"role.use"`: `"fsdp8"`, and
    `"fsdp4 x dp2"`, two replicas of four chunks, where `shard` is "fsdp2"; `"tp2 x dp4"` to
    generate. What isn't given is chosen by `flowrl plan`; in a run it is `fsdp` over all workers
    where `shard` is "fsdp2", and whole weights elsewhere."""
    residencies: dict[str, Literal["resident", "offload", "drop", "alias"]] = attrs.field(
        factory=dict
    )
    """What becomes of weights while other uses have the GPUs, by role or quoted `"role.use"`:
    `resident`, they stay; `offload`, they go to host memory; `drop`, they are freed and sent again;
    `alias`, they are the trainer's own. What isn't given is chosen by `flowrl plan`; in a run it is
    `resident`."""


@attrs.frozen
class ClusterTable:
    """Where the program runs. No key here changes what it computes, but for rounding."""

    executor: Literal["local", "ray"] = "local"
    """`local`: one process. `ray`: a worker process for each place in the pools."""
    address: str | None = None
    """`host:port` of a running Ray; a local one is started if not given."""
    num_gpus: Count | None = None
    """GPUs that a local Ray pretends to have, for tests; those it finds if not given."""
    rank_timeout: AboveZero = 600.0
    """Seconds for which workers that run one model together wait for one another."""
    check_weights_every: Count = 100
    """How often weights are compared: by checksums before and after a reshard, and between engine
    and trainer after a version is first sampled from; the first time and then every so many; 0 is
    never."""
    worker_output: bool = False
    """Show what the workers print."""
    machines: str | None = None
    """GPUs that plans and predictions of runs are for: `"8xH100"`, `"2x8xH100 + 4x8xA100-80G"`."""
    pools: dict[str, PoolSpec] = attrs.field(factory=dict)
    """The pools, by a name of your choice."""

    @property
    def emulates(self) -> bool:
        """Whether the pools' GPUs are emulated, and all is computed on CPUs."""
        return self.num_gpus is not None

    @property
    def claims(self) -> dict[str, str]:
        """The pool that claims each role, use of a role, `data` or `reward`."""
        return {claim: pool for pool, spec in self.pools.items() for claim in spec.roles}

    def pool(self, name: str) -> PoolSpec:
        """Return what is said of a pool; the defaults of one that isn't there."""
        return self.pools.get(name, PoolSpec())

    def home(self, role: str) -> str:
        """Return the pool where a role is run forward and trained."""
        claims, first = self.claims, next(iter(self.pools), MAIN)
        return claims.get(f"{role}.train", claims.get(role, first))
