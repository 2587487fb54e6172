"""A target is placed as its models of seconds and bytes say, or refused with what would help."""

import re

import pytest
from inline_snapshot import snapshot

from flowrl.compiler.search import Constraints, ModelCosts, Seated, best_placement, search
from flowrl.compiler.search.fixes import small_fixes
from flowrl.compiler.tasks import Seat
from flowrl.errors import ProgramError, RunFileError
from flowrl.ir.layout import Layout
from tests.compiler.search.steps import PPO, target

GENERATE, TRAIN = Seat("policy", "generate"), Seat("policy", "train")
CRITIC, REFERENCE = Seat("critic", "train"), Seat("reference", "score")


def without_numbers(error):
    """Return an error's text; the cost models' numbers are tested where they are made."""
    return re.sub(r"[\d.]+ (GB|s)\b", r"# \1", str(error.value))


def test_each_pool_holds_its_seats_at_every_moment():
    costs = ModelCosts(target("8xA100-80G", "qwen2.5-1.5b"), PPO)

    found = best_placement(PPO, costs)

    for pool in found.pools:
        took = {}
        for seat in pool.seats:
            its = found.seats[seat]
            use = Seated(seat, its.layout, pool.ranks, its.cache_share)
            took[seat] = costs.memory(use, its.residency)
        for seat in pool.seats:
            others = sum(took[other].asleep for other in pool.seats if other != seat)
            assert took[seat].awake + others <= costs.capacity(pool.ranks)[0]


def test_decisions_of_the_user_are_kept():
    constraints = Constraints(
        pools={GENERATE: "rollout", TRAIN: "train"},
        gpus={"rollout": 2},
        layouts={GENERATE: Layout(tp=2)},
        residencies={REFERENCE: "offload"},
        together=(frozenset({CRITIC, REFERENCE}),),
        apart=(frozenset({CRITIC, TRAIN}),),
        most_gpus=7,
    )

    found = search(PPO, target("8xA100-80G", "qwen2.5-0.5b"), constraints)

    placed = found.seats
    assert {pool.name for pool in found.pools} >= {"rollout", "train"}
    assert placed[GENERATE].pool == "rollout"
    assert placed[TRAIN].pool == "train"
    assert [len(p.ranks) for p in found.pools if p.name == "rollout"] == [2]
    assert str(placed[GENERATE].layout) == "tp2"
    assert placed[REFERENCE].residency == "offload"
    assert placed[CRITIC].pool == placed[REFERENCE].pool != placed[TRAIN].pool
    assert found.gpus <= 7


def test_layouts_divide_over_what_engines_can_only():
    constraints = Constraints(axes={"train": ("fsdp", "dp"), "generate": ("dp",)})

    found = search(PPO, target("8xA100-80G", "qwen2.5-7b", checkpointing=True), constraints)

    for seat, placed in found.seats.items():
        divided = {axis for axis, size in placed.layout.axes.items() if size > 1}
        assert divided <= set(constraints.axes.get(seat.use, divided))


def test_a_pool_lies_on_one_kind_of_gpu():
    mixed = target("4xH100 + 4xA100-80G", "qwen2.5-0.5b")

    found = search(PPO, mixed, Constraints(apart=(frozenset({TRAIN, CRITIC}),)))

    kinds = [{mixed.machines.gpu(rank).name for rank in pool.ranks} for pool in found.pools]
    assert all(len(kind) == 1 for kind in kinds)
    assert len(kinds) > 1


def test_a_named_pool_lies_on_the_kind_that_is_asked_for():
    mixed = target("4xH100 + 4xA100-80G", "qwen2.5-0.5b")
    constraints = Constraints(pools={TRAIN: "train"}, kinds={"train": "A100-80G"})

    found = search(PPO, mixed, constraints)

    (ranks,) = [pool.ranks for pool in found.pools if pool.name == "train"]
    assert mixed.machines.gpu(ranks[0]).name == "A100-80G"


def test_what_does_not_fit_is_itemised_with_the_cheapest_fix():
    tight = target("8xA100-80G", "llama-2-13b", microbatch_tokens=65536)

    with pytest.raises(ProgramError) as error:
        search(PPO, tight)

    assert without_numbers(error) == snapshot("""\
the step doesn't fit on 8xA100-80G: of all placements, the closest fit needs # GB more than the # GB of a GPU
  on 8 GPUs, while policy.train (tp8, offload) works: weights # GB, gradients # GB, optimizer # GB, activations # GB, engine # GB, buffers # GB
  and meanwhile policy.generate (tp4 x dp2, offload) # GB, reward.score (dp8, offload) # GB, reference.score (dp8, offload) # GB, critic.train (tp8, offload) # GB
help: microbatches of at most 8192 tokens: a step of # s; or checkpoint activations (# s); or microbatches of at most 16384 tokens (# s)\
""")


def test_a_fix_that_is_named_helps_and_is_the_fastest_of_those_that_do():
    tight = target("8xA100-80G", "llama-2-13b", microbatch_tokens=65536)

    with pytest.raises(ProgramError) as error:
        search(PPO, tight)

    steps = {}
    for fix in small_fixes(tight, Constraints()):
        found = best_placement(PPO, ModelCosts(fix.target, PPO), fix.constraints)
        steps |= {fix.text: found.seconds} if found else {}
    cheapest = min(steps, key=steps.get)
    assert error.value.hint.startswith(f"{cheapest}: a step of {steps[cheapest]:.3g} s")


def test_more_gpus_are_asked_for_where_nothing_else_helps():
    with pytest.raises(ProgramError) as error:
        search(PPO, target("8xA10", "llama-2-13b"))

    assert without_numbers(error) == snapshot("""\
the step doesn't fit on 8xA10: of all placements, the closest fit needs # GB more than the # GB of a GPU
  on 8 GPUs, while policy.train (tp8, offload) works: weights # GB, gradients # GB, optimizer # GB, activations # GB, engine # GB, buffers # GB
  and meanwhile policy.generate (tp4 x dp2, offload) # GB, reward.score (dp8, offload) # GB, reference.score (dp8, offload) # GB, critic.train (tp8, offload) # GB
help: take 32 GPUs (4x8xA10): a step of # s\
""")


def test_a_constraint_that_is_in_the_way_is_named():
    constraints = Constraints(residencies={TRAIN: "resident", CRITIC: "resident"}, most_gpus=1)

    with pytest.raises(ProgramError) as error:
        search(PPO, target("1xA100-80G", "qwen2.5-3b", checkpointing=True), constraints)

    assert without_numbers(error) == snapshot("""\
the step doesn't fit on 1xA100-80G: of all placements, the closest fit needs # GB more than the # GB of a GPU
  on 1 GPU, while policy.train (1, resident) works: weights # GB, gradients # GB, optimizer # GB, activations # GB, engine # GB, buffers # GB
  and meanwhile policy.generate (1, offload) # GB, reward.score (1, offload) # GB, reference.score (1, offload) # GB, critic.train (1, resident) # GB
help: offload the optimizer: a step of # s; or leave pools, layouts and residency to the search (# s)\
""")


def test_no_fix_takes_axes_that_the_engines_cannot_divide():
    tight, engines = target("8xA10", "qwen2.5-3b"), {"train": ("fsdp", "dp")}

    fixes = list(small_fixes(tight, Constraints(axes=engines)))

    assert "leave pools, layouts and residency to the search" not in {fix.text for fix in fixes}
    fixed = Constraints(axes=engines, residencies={TRAIN: "resident"})
    assert {str(fix.constraints) for fix in small_fixes(tight, fixed)} == {
        "train over fsdp and dp only",
        "train over fsdp and dp only, policy.train resident",
    }


def test_constraints_that_contradict_one_another_are_refused():
    constraints = Constraints(layouts={TRAIN: Layout(tp=2), GENERATE: Layout(tp=4)}, most_gpus=4)

    with pytest.raises(RunFileError) as error:
        search(PPO, target("8xA10", "qwen2.5-1.5b"), constraints)

    assert str(error.value) == snapshot("""\
no placement on 8xA10 keeps what is fixed: policy.train in tp2, policy.generate in tp4, at most 4 GPUs
help: check that pools have their layouts' sizes, and that the GPUs suffice for all; a pool over several nodes takes them whole\
""")


def test_a_decision_for_a_seat_that_no_op_uses_is_refused():
    with pytest.raises(RunFileError) as error:
        search(
            PPO, target("8xA10", "qwen2.5-0.5b"), Constraints(pools={Seat("polcy", "train"): "a"})
        )

    assert str(error.value) == snapshot("""\
`polcy.train` is placed, but no op of the program uses it (did you mean `policy.train`?)
help: the program uses policy.generate, reward.score, critic.score, reference.score, policy.train, critic.train\
""")


def test_a_pool_with_a_size_but_no_model_is_refused():
    constraints = Constraints(pools={TRAIN: "train"}, gpus={"trian": 2})

    with pytest.raises(RunFileError) as error:
        search(PPO, target("8xA10", "qwen2.5-0.5b"), constraints)

    assert str(error.value) == snapshot("""\
the pool `trian` has GPUs, but no model (did you mean `train`?)
help: place a use of a model there, or leave its size to the search\
""")


def test_a_layout_that_a_model_cannot_have_is_refused():
    with pytest.raises(RunFileError) as error:
        search(PPO, target("8xA10", "qwen2.5-0.5b"), Constraints(layouts={GENERATE: Layout(tp=4)}))

    assert str(error.value) == snapshot("""\
the layout `tp4` doesn't fit this qwen2 model: `tp` 4 doesn't divide the 14 heads of `model.layers.0.self_attn.q_proj.weight`
help: divide by fewer, and fill the pool with `dp` or `fsdp`\
""")


def test_a_trained_model_scores_where_it_trains_unless_its_score_seat_is_placed():
    small = target("4xA100-80G", "qwen2.5-0.5b")
    values = Seat("critic", "score")

    assert values not in search(PPO, small).seats
    placed = search(PPO, small, Constraints(pools={values: "values"}))
    assert placed.seats[values].pool == "values"
