"""What the compiler compiles for."""

import attrs

from flowrl.errors import RunFileError


@attrs.frozen
class Pool:
    """GPUs that act as one; 0 of them is the CPU.

    Attributes:
        name: as the run file calls it.
        gpus: how many GPUs it has.
        roles: what lives there: `policy`, or one use of it, `policy.generate`.
    """

    name: str
    gpus: int = 0
    roles: tuple[str, ...] = ()


@attrs.frozen
class Cluster:
    """Pools; what no pool claims lives in the first one."""

    pools: tuple[Pool, ...] = (Pool("main"),)

    def pool_of(self, role: str, use: str = "") -> str:
        """Return the pool of a use of a role: that of `role.use`, of `role`, or the first."""
        for name in (f"{role}.{use}", role):
            for pool in self.pools:
                if name in pool.roles:
                    return pool.name
        return self.pools[0].name

    def check(self, roles: set[str]) -> None:
        """Raise RunFileError if a pool claims a role that the program doesn't have."""
        for pool in self.pools:
            for claim in pool.roles:
                if claim.partition(".")[0] not in roles | {"data", "reward"}:
                    raise RunFileError(
                        f"pool `{pool.name}` claims `{claim}`, but the program has the roles "
                        f"{', '.join(sorted(roles))}",
                        where=f"  cluster.pools.{pool.name}.roles",
                        hint="name roles of the program, `data` or `reward`",
                    )
