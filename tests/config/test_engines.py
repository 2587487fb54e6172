"""Settings of engines that are fine alone and not together."""

from inline_snapshot import snapshot


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
`engines.policy.train.attention` = "varlen" is of packed rows; `packing` is "padded"
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
