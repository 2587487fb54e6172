"""The moves of all ranks fit together, for any plan."""

from collections import Counter, deque

from hypothesis import given, settings
from hypothesis import strategies as st

from flowrl.compiler.hardware import Machines
from flowrl.compiler.reshard import plan_reshard
from flowrl.runtime.reshard import Move
from flowrl.train.moves import move_of
from tests.compiler.layouts.models import placed, small
from tests.compiler.reshard.cases import cases


def moves_of(case, limit=1 << 20):
    """The moves of every rank that a plan has, by rank."""
    shape, src, dst, _ = case
    plan = plan_reshard(*case)
    ranks = sorted({*src.ranks, *dst.ranks})
    return plan, {rank: move_of(plan, shape, rank, limit) for rank in ranks}


def rounds(move):
    return [together for step in move.steps for together in step]


def numbers(buffer):
    return sum(piece.elements for piece in buffer.slices)


def numbered(move):
    """The rounds of a move: each buffer by its ends, its number between these, and its size."""
    before = Counter()
    for together in rounds(move):
        labels = []
        for buffer in together:
            ends = buffer.source, buffer.destination
            labels.append((*ends, before[ends], numbers(buffer)))
            before[ends] += 1
        yield labels


@settings(max_examples=40)
@given(cases(), st.sampled_from([50, 1000]))
def test_a_rank_sends_one_buffer_at_once_and_gets_one_within_the_limit(case, limit):
    plan, moves = moves_of(case, limit)

    for rank, move in moves.items():
        for together in rounds(move):
            assert 1 <= len(together) <= 2
            assert sum(buffer.source == rank for buffer in together) <= 1
            assert sum(buffer.destination == rank for buffer in together) <= 1
            assert all(numbers(b) * plan.sent_bytes <= limit for b in together)


@settings(max_examples=40)
@given(cases(), st.sampled_from([50, 1000]))
def test_ranks_that_wait_for_each_round_never_wait_for_one_another(case, limit):
    """Each round begins when all its ranks have done those before: nothing may be left over."""
    _, moves = moves_of(case, limit)
    left = {rank: deque(numbered(move)) for rank, move in moves.items()}
    met = set()

    while any(left.values()):
        begun = Counter(buffer for mine in left.values() if mine for buffer in mine[0])
        met |= {buffer for buffer, ends in begun.items() if ends == 2}
        done = [mine for mine in left.values() if mine and met.issuperset(mine[0])]
        assert done
        for mine in done:
            mine.popleft()


@settings(max_examples=40)
@given(cases())
def test_moves_have_all_the_bytes_of_the_plan_once_at_either_end(case):
    plan, moves = moves_of(case)

    sent, received = (
        sum(
            numbers(b) * plan.sent_bytes
            for rank, move in moves.items()
            for together in rounds(move)
            for b in together
            if getattr(b, end) == rank
        )
        for end in ("source", "destination")
    )

    assert sent == received == plan.bytes_moved


@settings(max_examples=40)
@given(cases())
def test_what_is_passed_on_has_come_in_an_earlier_step(case):
    _, moves = moves_of(case, limit=100)

    for rank, move in moves.items():
        arrived = set()
        for step in move.steps:
            mine = [b for together in step for b in together]
            passed_on = [b for b in mine if b.source == rank and b.hop]
            assert all(cells(piece) <= arrived for b in passed_on for piece in b.slices)
            for buffer in mine:
                for piece in buffer.slices if buffer.destination == rank else ():
                    arrived |= cells(piece)


def cells(piece):
    found = [()]
    for start, stop in piece.box:
        found = [(*cell, at) for cell in found for at in range(start, stop)]
    return {(piece.tensor, *cell) for cell in found}


def test_a_row_of_nodes_passes_on_one_part_of_the_model_while_the_next_one_comes():
    """Of four nodes one holds the weights: a buffer of a rank is a twelfth of them."""
    shape = small("llama", num_hidden_layers=8)
    machines = Machines.parse("4x1xH100")
    case = shape, placed("1"), placed("dp3", 1), machines

    plan, moves = moves_of(case, limit=-(-shape.count * 2 // 12))

    assert plan.seconds > plan.bottleneck.seconds
    assert [len(moves[rank].steps) for rank in range(4)] == [8, 9, 9, 8]


def test_a_rank_of_neither_layout_does_nothing():
    shape = small("llama")
    plan = plan_reshard(shape, placed("1"), placed("1", 1), Machines.parse("8xH100"))

    move = move_of(plan, shape, 5)

    assert move == Move(5, 2, {}, {}, (), (), ())
