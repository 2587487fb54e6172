"""Plans of adapters, of what waits in host memory, and of other keys of `[engines]`."""

import pytest
from inline_snapshot import external_file, snapshot

from flowrl.compiler.forecast import forecast
from flowrl.compiler.residency import residency
from flowrl.errors import EngineError
from flowrl.ir.action import Does
from flowrl.ops.model import Base
from flowrl.report.options import settings
from flowrl.report.plan import plan_text
from tests.report.conftest import example, planned

H100S = settings("8xH100", None)
LORA = "models.policy.lora={rank=16}"
SHARD = 'engines.policy.train.shard="fsdp2"'
POOLS = (
    "cluster.pools.trained={gpus=4, workers=4, roles=['policy.train'%s]}",
    "cluster.pools.rest={gpus=4, workers=4, roles=['policy.generate'%s]}",
)


def lines_of(sets, *starts):
    """Return the lines of GRPO's plan that begin so."""
    text = plan_text(example("grpo"), (*H100S, *sets))
    return "\n".join(line.rstrip() for line in text.splitlines() if line.startswith(starts))


def test_a_plan_of_an_adapter():
    """`pytest --inline-snapshot=fix` writes it anew."""
    text = plan_text(example("grpo"), (*H100S, LORA, SHARD))

    assert text + "\n" == external_file("plans/grpo-adapter-8xH100.txt")


@pytest.mark.parametrize("beside", ["policy.train", "policy.generate"])
def test_a_base_needs_no_place_where_its_adapter_is_trained(beside):
    with_reference = beside == "policy.train"
    trained, rest = (
        text % (", 'reference'" if here else "")
        for text, here in zip(POOLS, (with_reference, not with_reference), strict=True)
    )

    plan = planned(example("grpo"), (*H100S, LORA, trained, rest))

    seats = [*map(str, plan.found.seats)]
    assert ("reference.score" in seats) == (not with_reference)
    bases = [node for node in plan.graph.nodes if isinstance(node.op, Base)]
    assert len(bases) == with_reference
    assert "logprobs reference" in " ".join(map(str, plan.tasks))


@pytest.mark.parametrize("cluster", ["1xH200", "8xH100", "2x8xH100"])
def test_what_has_an_adapter_is_sampled_whole_and_lent_by_nobody(cluster):
    plan = planned(example("grpo"), (*settings(cluster, None), LORA))

    for seat, its in plan.found.seats.items():
        assert its.layout.tp == its.layout.pp == its.layout.ep == 1, seat
        assert its.layout.fsdp == 1 or seat.use != "generate"
        assert its.residency != "alias"


def test_adapters_of_unknown_layers_are_told_with_their_key():
    with pytest.raises(EngineError) as refused:
        plan_text(example("grpo"), (*H100S, 'models.policy.lora={targets=["q_porj"]}'))

    assert str(refused.value) == snapshot("""\
a qwen2 has no linear layers `q_porj` for adapters (did you mean `q_proj`?)
  --set models.policy.lora={targets=["q_porj"]}
help: there are down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj; targets = "all-linear" takes all but heads\
""")


@pytest.mark.parametrize(
    ("pools", "way"),
    [
        (
            (),
            snapshot(
                "`policy`: weights are copied into its generator: only its adapter trains and is sent"
            ),
        ),
        (
            (POOLS[0] % ", 'reference'", POOLS[1] % ""),
            snapshot(
                "`policy`: weights are transferred to its generator: pool `trained` trains it, pool `rest` samples from it"
            ),
        ),
    ],
)
def test_the_way_of_an_adapter_is_that_of_a_run(pools, way):
    assert lines_of((LORA, SHARD, *pools), "`policy`") == way


def test_what_is_offloaded_is_said_of_pools_and_memory():
    offload = 'engines.policy.train.offload="all"'
    activations = "engines.policy.train.offload_activations=true"

    shown = lines_of((SHARD, offload, activations), "  policy.train", "%16 update")

    assert shown == snapshot("""\
  policy.train     fsdp8      resident  all it keeps on the host, what layers keep on the host
%16 update policy       grpo.py:23  main  fsdp8      12.16 s  15.54 s   7.66 s  7.03 s   0.82 s    0.02 s  0.00 s
  policy.train     [EBBBBBBBBBBzzzzzzzzzzzzz................]  48.4 GB of 81.2 GB  activations 1.01 GB, engine 600 MB, buffers 20.3 GB; asleep: policy.generate 9.62 GB, reference.score 16.9 GB; on the host: 16 GB
%16 update policy           1  reference.score sleeps (-4.06 GB); policy.train wakes (+21.3 GB)                                                               0.00 s\
""")


def test_moments_on_the_host_take_less_memory_and_more_time():
    moments = 'engines.policy.train.offload="optimizer"'

    plain, less = (planned(example("grpo"), (*H100S, *more)) for more in ((), (moments,)))

    assert plain.found.seconds < less.found.seconds
    assert lines_of((moments,), "  policy.train") == snapshot("""\
  policy.train     fsdp8      resident  its moments on the host
  policy.train     [WWGGABBBBBBBBBBzzzzzzzzzzzzz............]  56.9 GB of 81.2 GB  weights 3.81 GB, gradients 3.81 GB, activations 1.8 GB, engine 600 MB, buffers 20.3 GB; asleep: policy.generate 9.62 GB, reference.score 16.9 GB; on the host: 7.62 GB\
""")


def test_moments_that_wait_on_the_host_stay_there_when_their_trainer_leaves():
    leaves = "{roles=['policy', 'reference'], residencies={'policy.train'='offload'}}"
    sets = ('engines.policy.train.offload="optimizer"', f"cluster.pools.all={leaves}")

    plan = planned(example("grpo"), (*H100S, *sets))

    (gone,) = (action for action in residency(plan) if action.does is Does.OFFLOAD)
    (memory,) = (of for of in forecast(plan).memory if str(of.seat) == "policy.train")
    assert gone.moved == memory.items["weights"] + memory.items["optimizer"]
    assert memory.host == pytest.approx(12 / 4 * gone.moved)  # 4 bytes, and 8 of moments


def test_what_is_compiled_is_planned_so():
    plain, compiled = (
        planned(example("grpo"), (*H100S, *more)).found.seconds
        for more in ((), ("engines.policy.train.compile=true",))
    )

    assert compiled < plain


def test_numbers_of_float64_are_trained_in_float64():
    plan = planned(example("grpo"), (*H100S, 'models.policy.dtype="float64"'))

    its = plan.target.workload.settings("policy")
    assert (its.weight_bytes, its.gradient_bytes, its.master_bytes, its.moment_bytes) == (
        *(8, 8),
        *(0, 16),
    )


def test_what_vllm_reserves_is_said_of_its_seat_and_kept_while_others_work():
    vllm = 'engines.policy.generate.engine="vllm"'
    pools = "cluster.pools.all={gpus=8, workers=8, roles=['policy', 'reference'], residencies=%s}"
    stays = pools % "{'policy.generate'='resident'}"

    shown = lines_of((vllm, 'models.policy.dtype="bfloat16"', stays), "  policy")

    assert shown == snapshot("""\
  policy.generate  tp2 x dp4  resident  vLLM reserves 34.2 GB, 0.4 of the GPU
  policy.train     fsdp8      resident
  policy.generate  [WWWWKKKKKKKKKKKKEzzzzzzz................]  48.9 GB of 81.2 GB  weights 7.62 GB, kv cache 24.5 GB, engine 2 GB, buffers 117 MB; asleep: reference.score 2.64 GB, policy.train 12 GB
  policy.train     [WWGGOOOAEBBBBBBBBBBzzzzzzzzzzzzzzzzzz...]  74.7 GB of 81.2 GB  weights 3.81 GB, gradients 3.81 GB, optimizer 7.62 GB, activations 1.8 GB, engine 600 MB, buffers 20.3 GB; asleep: policy.generate 34.1 GB, reference.score 2.64 GB\
""")
