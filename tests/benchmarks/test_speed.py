"""The benchmark of speed: its workloads, a model's tokens, logs, the table, the loop by hand."""

import json
import random
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest
import torch
from inline_snapshot import snapshot

FOLDER = Path(__file__).parents[2] / "benchmarks" / "speed"
NAMES = ("work", "make", "clock", "flowrl_row", "handloop_model", "run")


@pytest.fixture(scope="module")
def speed():
    """Return the scripts, which import one another by their own names."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield SimpleNamespace(**{name: import_module(name) for name in NAMES})
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def tiny(speed, tmp_path_factory):
    """Return a tiny workload, made."""
    work = speed.work.work_of("w3", tmp_path_factory.mktemp("speed"), 2, tiny=True)
    speed.make.main(work)
    return work


@pytest.mark.parametrize(
    ("name", "sizes"), [("w1", (512, 256, 600, 16)), ("w3", (1024, 64, 128, 128))]
)
def test_a_workload_is_what_its_run_file_says(speed, tmp_path, name, sizes):
    work = speed.work.work_of(name, tmp_path, 6, tiny=False)

    assert (work.sequences, work.prompt_tokens, work.tokens, work.rows) == sizes
    assert work.rows * work.length <= work.microbatch_tokens
    assert (work.steps, Path(work.data)) == (6, tmp_path / f"{name}.jsonl")


def test_a_workload_is_given_to_other_processes_whole(tiny, tmp_path):
    tiny.save(tmp_path / "work.json")

    assert type(tiny).load(str(tmp_path / "work.json")) == tiny


@pytest.mark.parametrize("size", [512, 49152, 151936])
def test_each_token_is_a_character_and_none_ends_a_sample(speed, size):
    tokenizer = speed.make.tokenizer(size)
    ids = random.Random(0).choices(range(len(speed.make.SPECIAL), size), k=500)

    text = tokenizer.decode(ids)

    assert len(tokenizer) == size
    assert len(text) == 500
    assert tokenizer(text)["input_ids"] == ids
    assert tokenizer.eos_token is None


def test_prompts_are_of_their_length_and_other_ones_in_each_step(tiny):
    rows = [json.loads(line)["prompt"] for line in Path(tiny.data).read_text().splitlines()]

    assert [len(row) for row in rows] == [tiny.prompt_tokens] * tiny.prompts * tiny.steps
    assert len(set(rows)) == len(rows)


def test_new_weights_are_taken_out_of_the_op_that_samples(speed):
    ops = [
        {"step": 1, "op": "%0", "kind": "generate", "seconds": 3.0},
        {"step": 1, "op": "%1", "kind": "score", "seconds": 0.25},
        {"step": 1, "op": "%2", "kind": "select", "seconds": 0.25},
        {"step": 1, "op": "%8", "kind": "update", "seconds": 2.0},
        {"step": 1, "op": "", "kind": "step", "seconds": 6.0},
    ]

    steps = speed.flowrl_row.steps(ops, [{"step": 1, "seconds/weights": 1.0}])

    assert steps == [{"generate": 2.0, "weights": 1.0, "reward": 0.25, "update": 2.0, "step": 6.0}]


def test_the_table_leaves_the_warm_up_out_and_says_what_no_part_has(speed):
    steps = [
        {"step": 90.0, "generate": 50.0, "update": 30.0},
        {"step": 4.0, "generate": 1.0, "update": 2.5},
        {"step": 6.0, "generate": 2.0, "update": 3.5},
    ]
    half = [{part: seconds / 2 for part, seconds in step.items()} for step in steps]
    sizes = {"workload": "w3", "peak_bytes": 2**31, "weights_bytes": 0}
    flowrl = {"system": "flowrl", "median": speed.run.medians(steps, 1), **sizes}
    handloop = {"system": "handloop", "median": speed.run.medians(half, 1), **sizes}
    failed = {"system": "trl", "workload": "w3", "failed": "see w3-trl.log"}

    text = "\n".join(speed.run.table([flowrl, handloop, failed]))

    assert text == snapshot("""\
                                 step  generate  logprobs    reward    update   weights     other       GiB   MB sent     ratio
flowrl            w3            5.000     1.500     0.000     0.000     3.000     0.000     0.500       2.0       0.0      2.00
handloop          w3            2.500     0.750     0.000     0.000     1.500     0.000     0.250       2.0       0.0      1.00
trl               w3         failed: see w3-trl.log\
""")


def plain_gradients(model, batch, advantages, work):
    """Return the gradients of the whole batch's loss, from all its logits."""
    model.zero_grad()
    logits = model(input_ids=batch, use_cache=False).logits[:, work.prompt_tokens - 1 : -1]
    tokens = batch[:, work.prompt_tokens :, None]
    new = torch.log_softmax(logits.float(), -1).gather(-1, tokens)[..., 0]
    loss = -(torch.exp(new - new.detach()) * advantages[:, None]).mean()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(("chunk", "rows"), [(1000, 16), (24, 4)])
def test_the_loop_by_hand_has_the_gradient_of_the_plain_loss(
    speed, tiny, monkeypatch, chunk, rows, old
):
    hand = speed.handloop_model
    monkeypatch.setattr(hand, "CHUNK", chunk)
    model, draw = hand.load(tiny, "cpu").float(), torch.Generator().manual_seed(0)
    batch = torch.randint(4, 512, (tiny.sequences, tiny.length), generator=draw)
    advantages = torch.randn(tiny.sequences, generator=draw)
    expected = plain_gradients(model, batch, advantages, tiny)
    model.zero_grad()

    parts = batch.split(rows)
    before = [hand.logprobs(model, part, tiny) for part in parts] if old else None
    hand.update(model, parts, advantages.split(rows), before, tiny)

    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter.grad, expected[name], atol=1e-6), name


def test_the_loop_by_hand_steps_in_float32_behind_bfloat16(speed, tiny):
    work = attrs.evolve(tiny, learning_rate=1e-4)
    narrow = torch.nn.Linear(4, 4, bias=False, dtype=torch.bfloat16)
    torch.nn.init.ones_(narrow.weight)
    optimizer = speed.handloop_model.Optimizer(narrow, work)

    for _ in range(30):
        narrow(torch.ones(1, 4, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()

    (master,) = optimizer.masters
    assert torch.allclose(master, torch.full((4, 4), 1 - 30 * 1e-4), atol=1e-5)
    assert torch.equal(narrow.weight, master.bfloat16())


@pytest.mark.slow
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_it_runs_whole_on_a_cpu(tmp_path):
    tiny = ["--shape", "tiny", "--steps", "2", "--warmup", "1", "--folder", str(tmp_path)]
    rows = ["--workloads", "w3", "--systems", "flowrl", "handloop"]
    command = [sys.executable, str(FOLDER / "run.py"), *tiny, *rows]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "speed.json").read_text())["rows"]
    assert [(row["system"], len(row["steps"])) for row in rows] == [("flowrl", 2), ("handloop", 2)]
    assert all(
        row["median"][part] > 0 for row in rows for part in ("generate", "update", "weights")
    )
