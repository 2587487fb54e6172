"""What others write to switch something off."""

import attrs
import pytest
from inline_snapshot import snapshot

from flowrl.config.programs import load_program
from flowrl.config.tables.headers import all_tables
from flowrl.config.tables.off import OFF
from flowrl.data.spec import DataSpec
from flowrl.errors import RunFileError

GENERATE = "engines.policy.generate"

SETS = [
    f"{GENERATE}.top_k=-1",
    f"{GENERATE}.top_p=0",
    f"{GENERATE}.max_tokens=None",
    f"{GENERATE}.temperature=-1",
    f"{GENERATE}.stop=None",
    "optimizer.max_grad_norm=0",
    "train.steps=-1",
]


@pytest.mark.parametrize("given", SETS)
def test_a_value_that_is_off_elsewhere_is_told_with_what_to_write(given, error_of):
    assert error_of("", given).splitlines()[::2] == TOLD[given]


TOLD = snapshot(
    {
        "engines.policy.generate.top_k=-1": [
            "`engines.policy.generate.top_k` must be an integer of at least 0; got -1",
            "help: for all tokens write 0, or leave `top_k` out",
        ],
        "engines.policy.generate.top_p=0": [
            "`engines.policy.generate.top_p` must be a number above 0 and up to 1; got 0",
            "help: for all tokens write 1, or leave `top_p` out",
        ],
        "engines.policy.generate.max_tokens=None": [
            '`engines.policy.generate.max_tokens` must be an integer of at least 1; got "None"',
            "help: TOML has no null; a completion has a limit: write the most tokens that one may have",
        ],
        "engines.policy.generate.temperature=-1": [
            "`engines.policy.generate.temperature` must be a number of at least 0; got -1",
            "help: write 0 for greedy samples; left out, it has its default",
        ],
        "engines.policy.generate.stop=None": [
            '`engines.policy.generate.stop` must be a list of strings; got "None"',
            "help: TOML has no null; leave `stop` out for its default",
        ],
        "optimizer.max_grad_norm=0": [
            "`optimizer.max_grad_norm` must be a number above 0; got 0",
            "help: for gradients that aren't clipped write a large one, such as 1e9",
        ],
        "train.steps=-1": ["`train.steps` must be an integer of at least 1; got -1"],
    }
)


def test_a_hyperparameter_that_is_null_elsewhere_is_told_with_what_to_write(load):
    sets = ["target_kl=none", "value_clip=None", "kl_coef=None"]
    run = load(
        "", "program.file=ppo_full", "program.samples=1", *(f"program.{each}" for each in sets)
    )
    program = load_program(run.program_file, "ppo_full")

    with pytest.raises(RunFileError) as caught:
        run.hyperparameters("ppo_full", program.signature)

    assert str(caught.value) == snapshot("""\
`program.target_kl` is a string: "none"
  --set program.target_kl=none
also: `program.value_clip` must be a number; got "None"
  --set program.value_clip=None
also: `program.kl_coef` must be a number; got "None"
  --set program.kl_coef=None
help: TOML has no null; leave `target_kl` out for its default\
""")


def test_what_to_write_is_known_of_keys_that_there_are():
    known = {field.name for _, cls in all_tables({"data": DataSpec}) for field in attrs.fields(cls)}

    assert set(OFF) - known == {"kl_coef", "dual_clip", "value_clip"}
