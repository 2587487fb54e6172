"""A run file as its user meets it."""

import inspect
from pathlib import Path

import attrs
import pytest
from inline_snapshot import snapshot

from flowrl.config import load_run_file
from flowrl.config.tables.schema import OptimizerSettings
from flowrl.errors import RunFileError
from tests.config.conftest import GRPO


@attrs.frozen
class Rows:
    """Stands for the class behind `[data]`."""

    source: str
    limit: int | None = None
    shuffle: bool = True


@attrs.frozen
class Function:
    """Stands for the class behind `[reward.<name>]`."""

    function: str
    batch: int = 64


def test_a_run_file_is_its_tables_and_defaults(load):
    run = load("[engines.policy.generate]\nmax_tokens = 9\n")

    assert run.program.file == "grpo"
    assert run.program.hyperparameters == {"samples": 4}
    assert run.models["reference"].path == "model"
    assert run.engines.role("policy").generate.max_tokens == 9
    assert run.engines.role("reference").train.tokens_per_microbatch == 4096
    assert run.cluster.executor == "local"
    assert run.train.steps == 100
    assert run.eval is None


def test_an_unknown_key_is_named_with_its_line_and_the_nearest(error_of):
    assert error_of("[optimizer]\nlerning_rate = 1e-5\n") == snapshot("""\
unknown key `lerning_rate` in [optimizer] (did you mean `learning_rate`?)
  run.toml:21
   21 | lerning_rate = 1e-5
        ^^^^^^^^^^^^
help: the keys of [optimizer] are learning_rate, betas, eps, weight_decay, warmup_steps, schedule, hold_fraction, final_fraction, max_grad_norm, start_step\
""")


def test_a_key_in_the_wrong_table_is_told_where_it_belongs(error_of):
    assert error_of("", "train.learning_rate=1e-5") == snapshot("""\
unknown key `learning_rate` in [train]
  --set train.learning_rate=1e-5
help: `learning_rate` is a key of [optimizer]; the keys of [train] are steps, prompts_per_step, seed, checkpoint_every, max_logprob_mismatch, max_mean_logprob_mismatch, folder\
""")
    assert error_of("", "engines.policy.max_tokens=9") == snapshot("""\
unknown key `max_tokens` in [engines.policy]
  --set engines.policy.max_tokens=9
help: `max_tokens` is a key of [engines.<role>.generate] and [eval]; the keys of [engines.policy] are generate, train\
""")
    assert error_of("", "train.lr=1e-5") == snapshot("""\
unknown key `lr` in [train]
  --set train.lr=1e-5
help: the keys of [train] are steps, prompts_per_step, seed, checkpoint_every, max_logprob_mismatch, max_mean_logprob_mismatch, folder\
""")


def test_a_hyperparameter_in_another_table_is_told_where_it_belongs(error_of):
    assert error_of("", "train.samples=4") == snapshot("""\
unknown key `samples` in [train]
  --set train.samples=4
help: `samples` is a hyperparameter: [program]; `samples` is a key of [eval] and [log]; the keys of [train] are steps, prompts_per_step, seed, checkpoint_every, max_logprob_mismatch, max_mean_logprob_mismatch, folder\
""")
    assert error_of("", "train.clip=0.2", "program.file=nosuch") == snapshot("""\
unknown key `clip` in [train]
  --set train.clip=0.2
help: the keys of [train] are steps, prompts_per_step, seed, checkpoint_every, max_logprob_mismatch, max_mean_logprob_mismatch, folder\
""")


def test_an_unknown_table_is_named(error_of):
    assert error_of("[optimiser]\nlearning_rate = 1e-5\n") == snapshot("""\
unknown key `optimiser` in the run file (did you mean `optimizer`?)
  run.toml:20
   20 | [optimiser]
         ^^^^^^^^^
help: the keys of the run file are program, correction, models, engines, cluster, data, reward, optimizer, train, eval, workload, log\
""")


def test_a_misspelt_key_among_names_of_ones_own_is_unknown(error_of):
    assert error_of("[engines]\nthread = 2\n") == snapshot("""\
unknown key `thread` in [engines] (did you mean `threads`?)
  run.toml:21
   21 | thread = 2
        ^^^^^^
help: the keys of [engines] are threads\
""")


def test_a_wrong_type_is_named_with_its_line(error_of):
    assert error_of('[log]\nsamples = "2"\n') == snapshot("""\
`log.samples` must be an integer of at least 0; got "2"
  run.toml:21
   21 | samples = "2"
        ^^^^^^^\
""")


def test_an_executor_that_does_not_exist_is_answered_with_those_that_do(error_of):
    assert error_of('[cluster]\nexecutor = "slurm"\n') == snapshot("""\
`cluster.executor` must be one of "local", "ray"; got "slurm"
  run.toml:21
   21 | executor = "slurm"
        ^^^^^^^^\
""")


def test_a_missing_key_is_named_with_its_table(error_of):
    assert error_of("[models.critic]\nhead = 'value'\n") == snapshot("""\
[models.critic] lacks the key `path`, a string
  run.toml:20
   20 | [models.critic]
                ^^^^^^\
""")


def test_a_missing_table_is_named(error_of):
    assert error_of(text="[program]\nfile = 'grpo'\n") == snapshot("""\
the run file lacks the key `models`, a table
  run.toml
also: the run file lacks the key `data`, a table
  run.toml
also: the run file lacks the key `train`, a table
  run.toml\
""")


def test_an_unknown_key_beside_no_program_is_named_with_what_is_missing(error_of):
    assert error_of(text="progam = 'grpo'\n") == snapshot("""\
the run file lacks the key `program`, a table
  run.toml
also: the run file lacks the key `models`, a table
  run.toml
also: the run file lacks the key `data`, a table
  run.toml
also: the run file lacks the key `train`, a table
  run.toml
also: unknown key `progam` in the run file (did you mean `program`?)
  run.toml:1
    1 | progam = 'grpo'
        ^^^^^^\
""")


def test_an_error_of_a_set_is_located_there(error_of):
    assert error_of("", "train.stps=5") == snapshot("""\
unknown key `stps` in [train] (did you mean `steps`?)
  --set train.stps=5
help: the keys of [train] are steps, prompts_per_step, seed, checkpoint_every, max_logprob_mismatch, max_mean_logprob_mismatch, folder\
""")
    assert error_of("", "train.steps=many") == snapshot("""\
`train.steps` must be an integer of at least 1; got "many"
  --set train.steps=many\
""")


def test_all_errors_come_at_once_in_the_order_of_the_file(error_of):
    assert error_of('[log]\nsamples = "2"\nconsole = "fancy"\n', "train.sed=1") == snapshot("""\
unknown key `sed` in [train] (did you mean `seed`?)
  --set train.sed=1
also: `log.samples` must be an integer of at least 0; got "2"
  run.toml:21
   21 | samples = "2"
        ^^^^^^^
also: `log.console` must be one of "auto", "rich", "plain"; got "fancy"
  run.toml:22
   22 | console = "fancy"
        ^^^^^^^
help: the keys of [train] are steps, prompts_per_step, seed, checkpoint_every, max_logprob_mismatch, max_mean_logprob_mismatch, folder\
""")


def test_sets_stand_over_the_file(load):
    run = load("", "train.steps=7", "program.clip=0.3", "models.policy.path=other/model")

    assert run.train.steps == 7
    assert run.program.hyperparameters == {"samples": 4, "clip": 0.3}
    assert run.models["policy"].path == "other/model"


def test_the_written_form_reads_back_as_the_same_run(load, tmp_path):
    run = load(
        "[optimizer]\nbetas = [0.9, 0.99]\n[optimizer.policy]\neps = 1e-6\n", "train.steps=7"
    )

    (tmp_path / "again.toml").write_text(run.as_text())
    again = load_run_file(tmp_path / "again.toml")

    assert again.written == run.written
    assert again.optimizer == run.optimizer


def test_a_role_of_the_optimizer_overrides_single_keys(load):
    added = "[models.critic]\npath = 'm'\n[optimizer]\neps = 1e-6\n[optimizer.critic]\nlearning_rate = 1e-4\n"

    optimizer = load(added).optimizer

    assert optimizer.role("critic") == OptimizerSettings(eps=1e-6, learning_rate=1e-4)
    assert optimizer.role("policy").learning_rate == 1e-6
    assert optimizer.role("policy").eps == 1e-6


def test_what_is_inherited_is_reported_once(error_of):
    assert error_of("[optimizer]\neps = 0\n[optimizer.policy]\nlearning_rate = 1\n") == snapshot("""\
`optimizer.eps` must be a number above 0; got 0
  run.toml:21
   21 | eps = 0
        ^^^\
""")


def test_several_keys_are_marked_for_an_error_about_them(load):
    assert load().where("train.prompts_per_step", "program.samples") == snapshot("""\
  run.toml:19
   19 | prompts_per_step = 6
        ^^^^^^^^^^^^^^^^
  run.toml:3
    3 | samples = 4
        ^^^^^^^\
""")


def test_an_open_table_is_structured_with_the_same_errors(load):
    run = load("[eval]\n[eval.data]\nlimt = 3\n")

    assert run.structure(Rows, "data") == Rows("train.jsonl")
    assert run.structure(Function, "reward.exact") == Function("reward.py:exact")
    with pytest.raises(RunFileError) as caught:
        run.structure(Rows, "eval.data")
    assert str(caught.value) == snapshot("""\
unknown key `limt` in [eval.data] (did you mean `limit`?)
  run.toml:22
   22 | limt = 3
        ^^^^
help: the keys of [eval.data] are source, limit, shuffle\
""")


def test_evaluation_reads_the_training_data_keys_that_it_lacks(load):
    run = load("[eval.data]\nlimit = 3\n", "data.shuffle=false")

    assert run.structure(Rows, "eval.data") == Rows("train.jsonl", limit=3, shuffle=False)


def test_several_data_inputs_have_tables_of_their_own(load):
    several = load(
        "[eval]\nsamples = 2\n",
        'data={prompts = {source = "p"}, demos = {source = "d"}}',
    )

    assert load().data_keys() == {"": "data"}
    assert several.data_keys() == {"prompts": "data.prompts", "demos": "data.demos"}
    assert several.structure(Rows, "data.demos") == Rows("d")
    assert several.structure(Rows, "eval.data") == Rows("p")


def test_a_misspelt_reward_key_is_no_reward(error_of):
    assert error_of("", "reward.on_reward_eror=fail") == snapshot("""\
unknown key `on_reward_eror` in [reward] (did you mean `on_reward_error`?)
  --set reward.on_reward_eror=fail
help: a reward is written `on_reward_eror = "path.py:function"`; the keys of [reward] are on_reward_error, workers\
""")


@pytest.mark.parametrize("value", ["exact_match", "reward.py", "3"])
def test_a_reward_without_a_function_is_told_how_to_name_one(error_of, value):
    said = error_of("", f"reward.reward={value}")

    assert said.endswith(
        'help: a reward is written `reward = "path.py:function"`; the keys of [reward] are '
        "on_reward_error, workers"
    )


def test_hyperparameters_take_the_types_of_the_signature(load):
    def program(policy, *, samples=8, clip=0.2, note: str | None = None, scale: bool = True): ...

    run = load("", "program.clip=1", "program.note=x", "program.scale=false")

    hyperparameters = run.hyperparameters("ours", inspect.signature(program))

    assert hyperparameters == {"samples": 4, "clip": 1.0, "note": "x", "scale": False}
    assert isinstance(hyperparameters["clip"], float)


def test_paths_start_at_the_folder_of_the_run_file(load, tmp_path):
    run = load()

    assert run.resolve("a/b") == tmp_path / "a/b"
    assert run.resolve("/a/b") == Path("/a/b")
    assert run.folder == tmp_path / "runs/run"
    assert load("", "train.folder=out").folder == tmp_path / "out"


def test_a_program_is_a_file_or_the_name_of_one_that_comes_along(load, tmp_path):
    (tmp_path / "mine.py").write_text("")

    assert load("", "program.file=mine.py").program_file == tmp_path / "mine.py"
    with pytest.raises(RunFileError, match=r"there is no file .*yours\.py"):
        _ = load("", "program.file=yours.py").program_file
    with pytest.raises(RunFileError, match="there is no program `nothing_like_it`"):
        _ = load("", "program.file=nothing_like_it").program_file


def test_models_must_be_those_that_the_program_reads(load):
    run = load(text=GRPO.replace("[models.reference]", "[models.refrence]"))

    run.check_models(["policy"], ["policy", "reference"])
    with pytest.raises(RunFileError) as caught:
        run.check_models(["policy", "reference"], ["policy", "reference"])
    assert str(caught.value) == snapshot("""\
[models] lacks `reference`, a model of the program
  run.toml:5
    5 | [models.policy]
         ^^^^^^
also: the program has no model `refrence` (did you mean `reference`?)
  run.toml:8
    8 | [models.refrence]
                ^^^^^^^^
help: add `[models.reference]` with its `path`; the program's models are policy, reference\
""")


def test_an_address_is_short_for_a_server(load):
    run = load(text=GRPO.replace("reward.py:exact", "http://host:8000/score"))

    assert run.written["reward"] == {"exact": {"http": "http://host:8000/score"}}
    assert run.reward.servers == ["exact"]
    assert load("[reward.m]\nhttp = 'http://h'\nmodel = 'judge'\n").reward.models == []
