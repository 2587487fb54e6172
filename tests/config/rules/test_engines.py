"""Settings of engines that are fine alone and not together."""

from typing import get_args

import pytest
from inline_snapshot import snapshot

from flowrl.runtime.known_engines import FACTS


def test_settings_of_an_engine_that_is_not_taken(error_of, load):
    table = "[engines.policy.generate.vllm]\nmax_model_len = 512\n"

    assert error_of(table) == snapshot("""\
`engines.policy.generate.vllm` is of the engine `vllm`; `engines.policy.generate.engine` is "hf"
  run.toml:20
   20 | [engines.policy.generate.vllm]
                                 ^^^^
  run.toml:20
   20 | [engines.policy.generate.vllm]
                        ^^^^^^^^
help: set `engine = "vllm"`, or leave the table out\
""")
    made = load("[engines.policy.generate]\nengine = 'vllm'\n" + table)
    assert made.engines.role("policy").generate.vllm.max_model_len == 512


def test_a_dtype_that_the_engine_does_not_compute_in(error_of):
    engine = "[engines.policy.generate]\nengine = 'vllm'\n"

    assert error_of(engine, "models.policy.dtype=float64") == snapshot("""\
`engines.policy.generate.engine` = "vllm" computes in float32 or bfloat16; `models.policy.dtype` is "float64"
  run.toml:21
   21 | engine = 'vllm'
        ^^^^^^
  --set models.policy.dtype=float64
help: take another dtype, or `engine = "hf"`\
""")


def test_weights_in_host_memory_that_nothing_gathers(error_of, load):
    train = "[engines.policy.train]\noffload = 'all'\n"

    assert error_of(train + "shard = 'none'\n") == snapshot("""\
`engines.policy.train.offload` = "all" is for weights that are gathered layer by layer; `shard` is "none"
  run.toml:21
   21 | offload = 'all'
        ^^^^^^^
  run.toml:22
   22 | shard = 'none'
        ^^^^^
help: set `shard = "fsdp2"`, or `offload = "optimizer"`\
""")
    assert load(train + "shard = 'fsdp2'\n").engines.role("policy").train.offload == "all"


def test_a_kernel_of_packed_rows_where_rows_are_padded(error_of, load):
    train = "[engines.policy.train]\npacking = 'padded'\n"

    assert error_of(train + "attention = 'varlen'\n") == snapshot("""\
`engines.policy.train.attention` = "varlen" needs packed rows; `packing` is "padded"
  run.toml:22
   22 | attention = 'varlen'
        ^^^^^^^^^
  run.toml:21
   21 | packing = 'padded'
        ^^^^^^^
help: leave one of them out\
""")
    load(train + "attention = 'sdpa'\n")


def test_activations_in_host_memory_that_nothing_keeps(error_of):
    assert error_of("[engines.policy.train]\noffload_activations = true\n") == snapshot("""\
`engines.policy.train.offload_activations` is for what checkpointed layers keep; `checkpointing` is false
  run.toml:21
   21 | offload_activations = true
        ^^^^^^^^^^^^^^^^^^^
  run.toml:20
   20 | [engines.policy.train]
                        ^^^^^
help: set `checkpointing = true`\
""")


def test_engines_that_there_are_not(error_of):
    assert error_of("[engines.policy.generate]\nengine = 'vlm'\n") == snapshot("""\
no engine called `vlm` can generate (did you mean `vllm`?)
  run.toml:21
   21 | engine = 'vlm'
        ^^^^^^
help: there are hf, vllm\
""")
    assert error_of("[engines.policy.train]\nengine = 'megatron'\n") == snapshot("""\
no engine called `megatron` can train
  run.toml:21
   21 | engine = 'megatron'
        ^^^^^^
help: there are torch\
""")


def test_completions_that_leave_no_room_for_a_prompt(error_of):
    tables = "[engines.policy.generate]\nengine = 'vllm'\nmax_tokens = 8\nvllm.max_model_len = 8\n"

    assert error_of(tables) == snapshot("""\
`engines.policy.generate.vllm.max_model_len` = 8 leaves no room for a prompt beside a completion of `engines.policy.generate.max_tokens` = 8
  run.toml:23
   23 | vllm.max_model_len = 8
             ^^^^^^^^^^^^^
  run.toml:22
   22 | max_tokens = 8
        ^^^^^^^^^^\
""")
    assert error_of(tables.replace("max_tokens = 8\n", "")) == snapshot("""\
`engines.policy.generate.vllm.max_model_len` = 8 leaves no room for a prompt beside a completion of `engines.policy.generate.max_tokens` = 256
  run.toml:22
   22 | vllm.max_model_len = 8
             ^^^^^^^^^^^^^
  run.toml:20
   20 | [engines.policy.generate]
                        ^^^^^^^^\
""")


def test_stop_strings_that_are_empty(error_of, load):
    engine = "[engines.policy.generate]\n"

    assert error_of(engine + 'stop = ["\\n", ""]\n') == snapshot("""\
`engines.policy.generate.stop` must be strings that are not empty; got ["\\n", ""]
  run.toml:21
   21 | stop = ["\\n", ""]
        ^^^^
help: leave the empty one out\
""")
    assert load(engine + 'stop = ["\\n", "é"]\n').engines.role("policy").generate.stop == (
        "\n",
        "é",
    )


def test_a_temperature_that_the_engine_does_not_sample_at(error_of, load):
    engine = "[engines.policy.generate]\nengine = 'vllm'\n"

    assert error_of(engine + "temperature = 2.5\n") == snapshot("""\
`engines.policy.generate.engine` = "vllm" samples at temperature 0, and from 0.01 to 2; `engines.policy.generate.temperature` is 2.5
  run.toml:22
   22 | temperature = 2.5
        ^^^^^^^^^^^
  run.toml:21
   21 | engine = 'vllm'
        ^^^^^^
help: take another temperature, or `engine = "hf"`\
""")
    for fine in ("0", "0.01", "2.0"):
        load(engine + f"temperature = {fine}\n")
    load("[engines.policy.generate]\ntemperature = 2.5\n")


def test_an_adapter_of_a_rank_that_the_engine_does_not_take(error_of, load):
    engine = "[engines.policy.generate]\nengine = 'vllm'\n"

    assert error_of(engine, "models.policy.lora.rank=600") == snapshot("""\
`engines.policy.generate.engine` = "vllm" takes adapters of rank 512 at most; `models.policy.lora.rank` is 600
  --set models.policy.lora.rank=600
  run.toml:21
   21 | engine = 'vllm'
        ^^^^^^
help: take a lower rank, or `engine = "hf"`\
""")
    load(engine, "models.policy.lora.rank=512")
    load("", "models.policy.lora.rank=600")


def test_the_highest_rank_of_an_adapter_is_vllms_own():
    lora = pytest.importorskip("vllm.config.lora")

    assert FACTS["vllm"].adapter_rank == max(get_args(lora.MaxLoRARanks))


def test_hf_computes_64_sequences_at_once_and_vllm_what_it_has_room_for(load):
    def together(table):
        return load(f"[engines.policy.generate]\n{table}").engines.role("policy").generate.together

    assert together("") == 64
    assert together('engine = "vllm"') is None
    assert together('engine = "vllm"\nsequences_per_block = 8') == 8


def test_more_tokens_at_least_than_at_most(error_of):
    assert error_of("[engines.policy.generate]\nmin_tokens = 300\n") == snapshot("""\
`engines.policy.generate.min_tokens` = 300 is more than `engines.policy.generate.max_tokens` = 256
  run.toml:21
   21 | min_tokens = 300
        ^^^^^^^^^^
  run.toml:20
   20 | [engines.policy.generate]
                        ^^^^^^^^\
""")


def test_a_temperature_that_takes_logits_out_of_their_range(error_of, load):
    engine = "[engines.policy.generate]\n"

    assert error_of(engine + "temperature = 1e-9\n") == snapshot("""\
`engines.policy.generate.engine` = "hf" samples at temperature 0, and from 1e-06; `engines.policy.generate.temperature` is 1e-09
  run.toml:21
   21 | temperature = 1e-9
        ^^^^^^^^^^^
  run.toml:20
   20 | [engines.policy.generate]
                        ^^^^^^^^
help: take another temperature\
""")
    for fine in ("0", "1e-6", "1e30"):
        load(engine + f"temperature = {fine}\n")
