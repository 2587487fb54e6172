"""What ranks vouch for is all that others need, once."""

from collections import Counter

from hypothesis import given, settings

from flowrl.compiler.reshard import plan_reshard
from flowrl.ir.box import common, elements
from flowrl.train.checks import checks_of
from tests.compiler.reshard.cases import cases
from tests.compiler.reshard.execute import tensors_of


@settings(max_examples=40)
@given(cases())
def test_all_that_ranks_need_is_compared_and_vouched_for_once(case):
    shape, src, dst, _ = case
    plan = plan_reshard(*case)

    checks = {rank: checks_of(plan, shape, rank) for rank in {*src.ranks, *dst.ranks}}

    parts = {p.number: p for each in checks.values() for p in each.needed}
    assert {each.count for each in checks.values()} == {len(parts)}
    vouched = Counter()
    for part in (p for each in checks.values() for p in each.held):
        assert part.parameter == parts[part.number].parameter
        assert common(part.box, parts[part.number].box) == part.box
        vouched[part.number] += elements(part.box)
    assert vouched == {number: elements(part.box) for number, part in parts.items()}


@settings(max_examples=40)
@given(cases())
def test_a_rank_compares_each_piece_of_what_it_stores(case):
    shape, _, dst, _ = case
    plan = plan_reshard(*case)

    for rank, shards in tensors_of(dst, shape).items():
        compared = [(p.parameter, p.box, p.slice.box) for p in checks_of(plan, shape, rank).needed]

        pieces = [(p.parameter, p.box, p.stored) for shard in shards for p in shard.pieces]
        assert sorted(compared) == sorted(pieces)
