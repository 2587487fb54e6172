"""Seconds of tasks: laws of physics that hold for any of them, and some numbers by hand."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrl.compiler.cost.generate import decode_steps
from flowrl.compiler.cost.seconds import seconds
from flowrl.compiler.hardware import GPU, GPUS, Machines, Node
from flowrl.compiler.shapes import ModelShape, known_shape
from flowrl.compiler.target import Lengths, Profile, Speeds
from flowrl.ir.layout import Layout
from tests.compiler.cost.targets import target, task

KINDS = ["generate", "logprobs", "values", "rewards", "update", "snapshot", "ema"]
MODELS = [known_shape(name) for name in ("smollm2-135m", "qwen2.5-7b", "mixtral-8x7b")]
LAYOUTS = ["1", "dp2", "fsdp4", "tp2", "pp2", "tp2 x pp2 x dp2", "fsdp2 x dp2", "ep2 x dp2"]
RATES = [f.name for f in attrs.fields(GPU) if f.name.endswith(("flops", "per_s"))]

kinds, models = st.sampled_from(KINDS), st.sampled_from(MODELS)
layouts = st.sampled_from([Layout.parse(text) for text in LAYOUTS])
sequences = st.integers(0, 3000)
responses = st.sampled_from([1, 600, {"mean": 600, "max": 4096}, [(10, 9), (3000, 1)]])
settings = st.builds(
    dict, checkpointing=st.booleans(), compiled=st.booleans(), microbatch_tokens=st.just(2048)
)
AT_ONCE = Profile({("*", "*"): Speeds(launch=1e-9)})


def spent(kind, count, shape, layout, its, passes=1):
    return seconds(task(kind, count, passes), shape, layout, range(layout.size), its)


@given(kinds, models, layouts, sequences, responses, settings)
def test_seconds_are_the_sum_of_terms_and_none_is_negative(kind, shape, layout, count, r, how):
    phase = spent(kind, count, shape, layout, target(response=r, **how))

    assert all(term >= 0 for term in phase.terms.values())
    assert phase.seconds == pytest.approx(sum(phase.terms.values()))


@given(kinds, models, layouts, sequences, st.integers(0, 1000), responses, settings)
def test_more_sequences_are_never_faster(kind, shape, layout, count, more, r, how):
    its = target(response=r, **how)
    few, many = (spent(kind, n, shape, layout, its).seconds for n in (count, count + more))

    assert few <= many * (1 + 1e-9)


@given(
    kinds,
    models,
    layouts,
    sequences,
    st.floats(1, 2000),
    st.floats(1, 3) | st.floats(1, 1.05),
    settings,
)
def test_longer_sequences_are_never_faster(kind, shape, layout, count, tokens, times, how):
    short = spent(kind, count, shape, layout, target(response=tokens, **how)).seconds
    long = spent(kind, count, shape, layout, target(response=tokens * times, **how)).seconds

    assert short <= long * (1 + 1e-9)


@given(kinds, models, layouts, sequences, settings, st.sampled_from(RATES), st.floats(1, 4))
def test_a_faster_gpu_is_never_slower(kind, shape, layout, count, how, rate, times):
    gpu = GPUS["A100-80G"]
    better = attrs.evolve(gpu, **{rate: getattr(gpu, rate) * times})
    before, after = (
        spent(kind, count, shape, layout, target(Machines((Node(its, 8),)), **how)).seconds
        for its in (gpu, better)
    )

    assert after <= before * (1 + 1e-9)


@given(models, layouts, st.integers(1, 3000), st.booleans())
def test_an_update_takes_a_forward_pass_thrice_and_once_more_for_a_second_pass(
    shape, layout, count, compiled
):
    its = target(compiled=compiled)
    forward = spent("logprobs", count, shape, layout, its)
    one, two = (spent("update", count, shape, layout, its, passes=n) for n in (1, 2))

    assert one.compute == pytest.approx(3 * forward.compute)
    assert two.compute == pytest.approx(4 * forward.compute)
    assert one.memory > 3 * forward.memory  # and the optimizer's


@given(models, layouts, st.integers(1, 3000))
def test_checkpointing_runs_all_but_the_head_again(shape, layout, count):
    forward = spent("logprobs", count, shape, layout, target())
    plain, again = (
        spent("update", count, shape, layout, target(checkpointing=on)) for on in (False, True)
    )

    assert plain.seconds <= again.seconds * (1 + 1e-9)  # equal where it waits for others
    assert again.compute - plain.compute <= forward.compute * (1 + 1e-9)


@given(models, st.integers(64, 3000))
def test_replicas_divide_the_work(shape, count):
    its = target()
    one = spent("logprobs", count * 4, shape, Layout(), its)
    four = spent("logprobs", count * 4, shape, Layout(dp=4), its)

    assert one.compute == pytest.approx(4 * four.compute, rel=0.02)


def test_nothing_to_do_takes_no_time():
    for kind in ("generate", "logprobs", "update"):
        assert spent(kind, 0, MODELS[0], Layout(), target()).seconds == 0


def test_pipeline_stages_wait_for_the_first_microbatch():
    its = target("8xH100", microbatch_tokens=856, profile=AT_ONCE)  # one sequence each
    phase = spent("update", 32, known_shape("qwen2.5-7b"), Layout(pp=4), its)
    work = phase.seconds - phase.overhead - 0.02

    assert phase.overhead - 0.02 == pytest.approx(3 / 32 * work, rel=0.1)


def test_small_microbatches_wait_for_python():
    shape = known_shape("smollm2-135m")
    few, many = (
        spent("logprobs", 1024, shape, Layout(), target(microbatch_tokens=tokens))
        for tokens in (262144, 856)
    )

    assert few.overhead == 0.02
    assert many.seconds == pytest.approx(0.02 + 1024 * 30 * 8.8e-4)


def test_compiled_layers_are_launched_in_half_the_time_and_shards_in_more():
    shape = known_shape("smollm2-135m")

    def launching(layout="1", **how):
        its = target(microbatch_tokens=856, **how)
        return spent("update", 64, shape, Layout.parse(layout), its).seconds - 0.02

    assert launching() == pytest.approx(64 * 30 * 4.5 * 8.8e-4)
    assert launching(compiled=True) == pytest.approx(launching() / 2)
    assert launching("fsdp2") == pytest.approx(32 * 30 * (4.5 + 2 * 2.3) * 8.8e-4)


def test_gathering_weights_hides_behind_long_computing_but_for_a_layer():
    shape, layout = known_shape("qwen2.5-7b"), Layout(fsdp=8)
    long = spent("logprobs", 4096, shape, layout, target(microbatch_tokens=65536))
    slow = attrs.evolve(GPUS["H100"], nvlink_bytes_per_s=1e9)
    bound = spent("logprobs", 4096, shape, layout, target(Machines((Node(slow, 8),))))

    assert long.network < 0.01 * long.seconds
    assert bound.network > 10 * bound.compute


def test_decoding_one_sequence_reads_all_weights_a_token():
    shape = known_shape("llama-3.1-8b")
    phase = spent("generate", 1, shape, Layout(), target("1xH100", prompt=1, response=1000))
    embedding = 128256 * 4096
    read = 2 * (shape.count - embedding) * 1000 / (0.85 * 3350e9)

    assert phase.compute == pytest.approx(read, rel=0.01)


def test_decoding_reads_a_tied_head_too():
    shape = known_shape("smollm2-135m")
    phase = spent("generate", 1, shape, Layout(), target("1xH100", prompt=1, response=1000))

    assert phase.compute == pytest.approx(2 * shape.count * 1000 / (0.85 * 3350e9), rel=0.01)


def test_decoding_reads_the_cache_of_all_before_a_token():
    shape = known_shape("llama-2-7b")
    its = target("1xH200", prompt=200, response=600, prompts=64)
    phase = spent("generate", 64, shape, Layout(), its)
    widths = 30 * 4096 + 12 * 2 * 4096 + 12 * 11008
    prompts = 64 * 200 * 32 * widths
    caches = 64 * 600 * (200 + 300) * shape.kv_bytes_per_token()

    assert phase.memory == pytest.approx((prompts + caches) / (0.85 * 4800e9))


def test_tensor_parallelism_sums_the_hidden_state_twice_a_layer_and_pass():
    shape, layout = known_shape("llama-3.1-8b"), Layout(tp=8)
    its = target(microbatch_tokens=10**6)
    once = 2 * 7 / 8 * 128 * 856 * 4096 * 2 / (0.65 * 450e9)
    forward, update = (spent(kind, 128, shape, layout, its) for kind in ("logprobs", "update"))

    assert forward.network == pytest.approx(2 * 32 * once, rel=0.02)
    assert update.network == pytest.approx(2 * forward.network)


def test_replicas_sum_gradients_in_the_last_backward_pass():
    shape, slow = known_shape("qwen2.5-7b"), attrs.evolve(GPUS["H100"], nvlink_bytes_per_s=1e9)
    fast, bound = (
        spent("update", 64, shape, Layout(dp=8), target(Machines((Node(its, 8),))))
        for its in (GPUS["H100"], slow)
    )
    sums = 2 * 7 / 8 * 4 * shape.count / (0.65 * 1e9)

    assert fast.network < 0.05 * fast.seconds
    assert 0.9 * sums < bound.network < sums


def test_the_few_longest_are_the_tail():
    lengths = [(100, 99), (2000, 1)]
    uneven = spent("generate", 512, MODELS[1], Layout(), target(response=lengths))
    even = spent("generate", 512, MODELS[1], Layout(), target(response=119))

    assert even.tail == 0
    assert uneven.tail > 5 * (uneven.seconds - uneven.tail)


def test_what_does_not_fit_waits_for_those_that_end():
    workload = target(response=100, prompt=10).workload
    waiting, last = decode_steps(workload, sequences=300, running=100, everywhere=300)

    assert (waiting.count, waiting.running, waiting.tokens) == (200, 100, 60)
    assert (last.count, last.running) == (100, 100)


@given(responses, st.integers(1, 500), st.integers(1, 500))
def test_decode_steps_give_each_sequence_its_tokens(r, count, running):
    workload = target(response=r).workload
    steps = decode_steps(workload, count, min(count, running), everywhere=1e9)
    given_out = sum(s.count * s.running for s in steps)
    exact = all(
        longer * min(count, running) >= 1 for *_, longer in workload.response_tokens.survival()
    )

    assert given_out >= count * workload.response_tokens.mean * (1 - 1e-9)
    if exact:
        assert given_out == pytest.approx(count * workload.response_tokens.mean)


def test_a_small_cache_costs_time():
    its = target()
    whole, part = (
        seconds(task("generate", 512), MODELS[1], Layout(), range(1), its, share).seconds
        for share in (1.0, 0.1)
    )

    assert part > 2 * whole


def test_experts_that_no_token_needs_are_not_read():
    shape: ModelShape = known_shape("qwen3-30b-a3b")
    one, many = (
        spent("generate", n, shape, Layout(), target("1xB200", prompt=1, response=100)).compute
        for n in (1, 256)
    )

    assert one < many / 5


def test_expert_parallelism_exchanges_tokens():
    shape = known_shape("mixtral-8x7b")

    assert spent("logprobs", 64, shape, Layout(ep=4), target()).network > 0
    assert spent("logprobs", 64, shape, Layout(dp=4), target()).network == 0


def test_lengths_of_the_workload_count():
    spread = Lengths.of({"mean": 600, "max": 4096}).mean_square

    assert spread > 600**2
    even, uneven = (
        spent("logprobs", 512, MODELS[1], Layout(), target(response=r)).compute
        for r in (600, {"mean": 600, "max": 4096})
    )
    assert uneven > even  # attention grows with the square


def test_speeds_scale_as_a_whole():
    assert Speeds().slowed(2).flops == Speeds().flops / 2
    assert Speeds().slowed(2).start == Speeds().start * 2
