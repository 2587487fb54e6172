"""What the tables of pools say."""

import pytest

from flowrl.config.tables.cluster import ClusterTable, PoolSpec


@pytest.mark.parametrize(
    ("role", "pool"), [("policy", "b"), ("critic", "c"), ("reference", "a"), ("reward", "a")]
)
def test_a_model_is_trained_where_that_is_claimed_or_else_the_model_or_in_the_first_pool(
    role, pool
):
    claims = {"a": ("reference",), "b": ("policy.train",), "c": ("policy", "critic")}
    cluster = ClusterTable(pools={name: PoolSpec(roles=roles) for name, roles in claims.items()})

    assert cluster.home(role) == pool


def test_without_pools_all_is_in_one_of_one_worker():
    cluster = ClusterTable()

    assert cluster.pool(cluster.home("policy")).workers == 1
