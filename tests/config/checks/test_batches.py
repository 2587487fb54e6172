"""The four batch sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.config import batch_sentence, check_batches
from flowrl.config.checks.batches import checked_batches
from flowrl.config.traced import trace_run
from flowrl.errors import RunFileError
from tests.config.conftest import GRPO


def test_a_remainder_is_refused_with_its_numbers():
    with pytest.raises(RunFileError) as caught:
        check_batches(6, 4, 5, by="sequence", where="  grpo.toml:3")

    assert str(caught.value) == snapshot("""\
24 responses a step (`train.prompts_per_step` = 6 x samples = 4) don't split into minibatches of 5: remainder 4
  grpo.toml:3
help: a minibatch of 4 fits\
""")


def test_a_minibatch_that_splits_groups_is_refused():
    with pytest.raises(RunFileError) as caught:
        check_batches(6, 4, 6)

    assert str(caught.value) == snapshot("""\
minibatches of 6 split the groups of 4 samples of a prompt: remainder 2
help: a minibatch of 4 fits\
""")


sizes = st.integers(1, 12)


@given(sizes, sizes, st.integers(0, 150), st.sampled_from(["group", "sequence"]))
def test_what_is_refused_is_refused_with_a_minibatch_that_fits(prompts, samples, minibatch, by):
    unit, sequences = samples if by == "group" else 1, prompts * samples
    divides = minibatch > 0 and sequences % minibatch == 0 and minibatch % unit == 0
    fits = divides or minibatch >= sequences

    try:
        check_batches(prompts, samples, minibatch, by=by)
    except RunFileError as error:
        assert not fits
        check_batches(prompts, samples, int(error.hint.split()[3]), by=by)
    else:
        assert fits


def test_a_sentence_says_what_follows():
    assert batch_sentence(32, 8, tokens_per_microbatch=4096) == snapshot(
        "A step samples 8 completions of each of 32 prompts: 256 sequences, one update of 256; microbatches hold at most 4096 tokens."
    )
    assert batch_sentence(64, 4, minibatch=64, epochs=2, tokens_per_microbatch=512) == snapshot(
        "A step samples 4 completions of each of 64 prompts: 256 sequences, 8 updates of 64 in 2 epochs; microbatches hold at most 512 tokens."
    )
    assert batch_sentence(1, 1, tokens_per_microbatch=512) == snapshot(
        "A step samples 1 completion of 1 prompt: 1 sequence, one update of 1; microbatches hold at most 512 tokens."
    )
    assert batch_sentence(
        16, 5, minibatch=8, epochs=2, tokens_per_microbatch=512, chosen=True
    ) == snapshot(
        "A step samples 5 completions of each of 16 prompts: 80 sequences, updates of up to 8 chosen in 2 epochs; microbatches hold at most 512 tokens."
    )
    assert batch_sentence(16, 5, tokens_per_microbatch=512, chosen=True) == snapshot(
        "A step samples 5 completions of each of 16 prompts: 80 sequences, one update of those chosen; microbatches hold at most 512 tokens."
    )
    assert batch_sentence(16, 5, tokens_per_microbatch=512, until=True) == snapshot(
        "A step keeps 5 completions of each of 16 prompts: 80 sequences, one update of 80; microbatches hold at most 512 tokens."
    )
    assert batch_sentence(16, 4, tokens_per_microbatch=512, trains=False) == snapshot(
        "A step samples 4 completions of each of 16 prompts: 64 sequences; it trains nothing."
    )
    assert batch_sentence(8, 4, minibatch=64, epochs=2, tokens_per_microbatch=512) == snapshot(
        "A step samples 4 completions of each of 8 prompts: 32 sequences, 2 updates of 32 in 2 epochs, as a minibatch has room for 64; microbatches hold at most 512 tokens."
    )
    assert batch_sentence(32, None, minibatch=16, tokens_per_microbatch=512) == snapshot(
        "A step reads 32 rows, 2 updates of 16; microbatches hold at most 512 tokens."
    )


def test_groups_that_minibatches_do_not_divide_are_counted_as_the_program_counts_them(load):
    dapo = GRPO.replace('file = "grpo"\nsamples = 4', 'file = "dapo"\nsamples = 2\ngroups = 3')
    run = load("", "program.minibatch=4", text=dapo)

    with pytest.raises(RunFileError) as error:
        checked_batches(run, trace_run(run).graph)

    assert str(error.value) == snapshot("""\
6 responses a step (`groups` = 3 x samples = 2) don't split into minibatches of 4: remainder 2
  dapo.py:20
   20 |     (rollouts, rewards), surplus, drawn = ops.sample_until(
                                                  ^^^^^^^^^^^^^^^^^
  dapo.py:32
   32 |     policy, stats = ops.scan(body, policy, ops.minibatches(batch, sequences=minibatch))
                                                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: a minibatch of 2 fits\
""")


def test_groups_are_as_many_as_a_step_reads_prompts_unless_they_are_given(load):
    dapo = GRPO.replace('file = "grpo"', 'file = "dapo"').replace("exact =", "reward =")
    run = load("", text=dapo)

    assert checked_batches(run, trace_run(run).graph) == snapshot(
        "A step keeps 4 completions of each of 6 prompts: 24 sequences, one update of 24, as a minibatch has room for 512; microbatches hold at most 4096 tokens."
    )


def test_groups_that_no_number_of_rounds_gives_are_refused_with_numbers_that_fit(load):
    dapo = GRPO.replace('file = "grpo"', 'file = "dapo"\ngroups = 64').replace(
        "exact =", "reward ="
    )
    run = load("", text=dapo)

    with pytest.raises(RunFileError) as error:
        checked_batches(run, trace_run(run).graph)

    assert str(error.value) == snapshot("""\
a step can't keep `groups` = 64 prompts: 10 rounds of `train.prompts_per_step` = 6 read 60
  run.toml:20
   20 | prompts_per_step = 6
        ^^^^^^^^^^^^^^^^
  dapo.py:20
   20 |     (rollouts, rewards), surplus, drawn = ops.sample_until(
                                                  ^^^^^^^^^^^^^^^^^
help: set `prompts_per_step` to at least 7, or `groups` to at most 60\
""")
    fitting = load("", "program.groups=60", text=dapo)
    assert "each of 60 prompts" in checked_batches(fitting, trace_run(fitting).graph)


def test_microbatches_are_those_of_the_model_that_is_trained_wherever_its_table_stands(load):
    teacher = '[models.teacher]\npath = "model"\n\n[models.policy]'
    text = GRPO.replace("[models.policy]", teacher).replace("exact =", "reward =")
    run = load("[engines.policy.train]\ntokens_per_microbatch = 100\n", text=text)

    assert checked_batches(run, trace_run(run).graph).endswith("at most 100 tokens.")
