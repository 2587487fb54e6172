"""What the compiler compiles for."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import attrs

from flowrl.ir.plan import Pool, names_of_use

__all__ = ["OTHER_ROLES", "Cluster", "Pool"]

OTHER_ROLES = ("data", "reward")
"""What a pool may hold besides models."""


@attrs.frozen
class Cluster:
    """Pools; what no pool claims lives in the first one.

    Attributes:
        pools: the first one has what none claims.
        homes: the use that a role's weights live for, where the program alone does not say.
        bases: the roles that are trained by adapters on the model of a role, by the latter.
    """

    pools: tuple[Pool, ...] = (Pool("main"),)
    homes: Mapping[str, str] = attrs.field(factory=dict)
    bases: Mapping[str, Sequence[str]] = attrs.field(factory=dict)

    def pool_of(self, role: str, use: str = "") -> str:
        """Return the pool of a use of a role: that of `role.use`, of `role`, or the first.

        A model scores where it is trained, unless a pool claims `role.score`.
        """
        claims = ((pool, name) for name in names_of_use(role, use) for pool in self.pools)
        return next((pool.name for pool, name in claims if name in pool.roles), self.pools[0].name)

    def gpus_of(self, role: str, use: str) -> int:
        """Return the number of GPUs of the pool of a use of a role."""
        name = self.pool_of(role, use)
        return next(pool.gpus for pool in self.pools if pool.name == name)

    def layout_of(self, role: str, use: str) -> str:
        """Return how the weights lie for a use of a role; "" is whole, on one rank.

        A model scores as it is trained, and trains as its role says, unless a layout is set for
        the use.
        """
        name = self.pool_of(role, use)
        layouts = next(pool.layouts for pool in self.pools if pool.name == name)
        return next((layouts[name] for name in names_of_use(role, use) if name in layouts), "")

    def residency_of(self, role: str, use: str) -> str:
        """Return what becomes of a use of a role while others work in its pool; "" if not said."""
        name = self.pool_of(role, use)
        given = next(pool.residencies for pool in self.pools if pool.name == name)
        return next((given[name] for name in names_of_use(role, use) if name in given), "")

    def home_of(self, role: str, uses: Collection[str]) -> str:
        """Return the use of a role that its weights live for: `train`, or else one that reads."""
        return self.homes.get(role) or next(
            (use for use in ("train", "score", "generate") if use in uses), "train"
        )

    def of_one(self, role: str, name: str, home: str, others: Collection[str] = ()) -> "Cluster":
        """Return the same pools for a program whose model `name` is what `role` is here.

        Its weights live for the use `home`. Its other models, `others`, have the same names here.
        """
        named = {other: other for other in (*others, *OTHER_ROLES)} | {role: name}

        def renamed(claims: Iterable[str]) -> Iterator[tuple[str, str]]:
            for claim in claims:
                of, dot, use = claim.partition(".")
                if of in named:
                    yield claim, named[of] + dot + use

        def there(pool: Pool) -> Pool:
            roles = tuple(new for _, new in renamed(pool.roles))
            layouts = {new: pool.layouts[old] for old, new in renamed(pool.layouts)}
            stays = {new: pool.residencies[old] for old, new in renamed(pool.residencies)}
            return attrs.evolve(pool, roles=roles, layouts=layouts, residencies=stays)

        return Cluster(tuple(map(there, self.pools)), {name: home})
