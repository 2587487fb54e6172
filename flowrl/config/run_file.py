"""Read a run file: TOML text into checked tables that know where each key stands."""

from collections.abc import Iterable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import attrs
import tomlkit

from flowrl.config.programs import load_program, program_file
from flowrl.config.rules.contradictions import contradictions
from flowrl.config.rules.paths import paths_lead, run_folder
from flowrl.config.tables.headers import with_homes
from flowrl.config.tables.hyperparameters import check_hyperparameters
from flowrl.config.tables.models import ModelTable, RewardModelTable
from flowrl.config.tables.off import with_off
from flowrl.config.tables.schema import ProgramTable, RewardTable, Tables
from flowrl.config.toml.source import Source
from flowrl.config.toml.structure import Invalid, KeyPath, Problem, Table, structure
from flowrl.errors import FlowrlError, ProgramError, RunFileError, nearest

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class RunFile(Tables):
    """A run file's tables, checked; `written` is them as TOML, with what they inherit."""

    source: Source
    written: Table

    def structure(self, cls: type[T], key: str) -> T:
        """Make a `cls` of the table at a dotted key, such as `data` or `reward.math`.

        Raises:
            RunFileError: an unknown key, a wrong type or a missing key, with its line.
        """
        path: KeyPath = tuple(key.split("."))
        value: Any = self.written
        for part in path:
            value = value.get(part, {})
        try:
            return structure(cls, value, path)
        except Invalid as error:
            raise _invalid(error, self.source, self.written) from None

    @property
    def roles(self) -> dict[str, ModelTable]:
        """Every model by its role: those of the program, and those that give rewards.

        Raises:
            RunFileError: the table of a reward that a model gives is wrong.
        """
        tables = {n: self.structure(RewardModelTable, f"reward.{n}") for n in self.reward.models}
        return self.models | {name: table.as_model() for name, table in tables.items()}

    def model_folder(self, role: str) -> Path:
        """Return where a role's model is, if its path is no name of one on the hub."""
        return self.resolve(self.roles[role].path)

    def model_key(self, role: str) -> str:
        """Return the dotted key that names the folder of a role's model."""
        return f"reward.{role}.model" if role in self.reward.models else f"models.{role}.path"

    def where(self, *keys: str) -> str:
        """Return excerpts that mark dotted keys, for an error about them."""
        return "\n".join(self.source.where(tuple(key.split("."))) for key in keys)

    def hyperparameters(self, program: str, signature: Signature) -> dict[str, Any]:
        """Return those that `[program]` gives, checked against the program's keywords."""
        given = self.program.hyperparameters
        return check_hyperparameters(given, signature, self.source, program)

    def data_keys(self) -> dict[str, str]:
        """Return the dotted key of each data input, by its name.

        `[data.<input>]` tables name several. Keys in `[data]` itself describe the only input,
        whatever the program calls it; its name here is empty.
        """
        if _has_inputs(self.data):
            return {name: f"data.{name}" for name in self.data}
        return {"": "data"}

    def check_models(self, needed: Iterable[str], known: Iterable[str]) -> None:
        """Check that `[models]` has the roles that the program needs.

        One that the program hasn't is left unused, unless it is nearly the name of one that is
        missing. A model of the program and a reward that a model gives can't have one name.

        Args:
            needed: roles that something reads.
            known: all roles of the program.

        Raises:
            RunFileError: a role is missing, misspelt or there twice.
        """
        needed, known = list(needed), list(known)
        missing = [role for role in needed if role not in self.models]
        hint = f"the program's models are {', '.join(known)}"
        problems = [
            Problem(("models", role), f"the program has no model `{role}`{close}", hint)
            for role in self.models
            if role not in known and (close := nearest(role, missing))
        ]
        problems += [
            Problem(
                ("models",),
                f"[models] lacks `{role}`, a model of the program",
                f"add `[models.{role}]` with its `path`; {hint}",
            )
            for role in missing
        ]
        problems += [
            Problem(
                ("reward", name),
                f"`{name}` names a reward that a model gives, and a model of the program",
                "give one of them another name: each is a role",
            )
            for name in self.reward.models
            if name in known
        ]
        if problems:
            raise self.source.error(problems)

    def resolve(self, path: str) -> Path:
        """Return a path of the run file: relative ones start at the run file's folder."""
        return self.source.file.parent.absolute() / Path(path).expanduser()

    @property
    def folder(self) -> Path:
        """Where checkpoints and logs go."""
        return self.resolve(run_folder(self.train.folder, self.source.file))

    @property
    def program_file(self) -> Path:
        """The program's file.

        Raises:
            RunFileError: there is no such file, or flowrl has no program of that name.
        """
        try:
            return program_file(self.program.file, self.source.file.parent.absolute())
        except ProgramError as error:
            problem = Problem(("program", "file"), error.problem, error.hint)
            raise self.source.error([problem]) from None

    def as_text(self) -> str:
        """Return the run file as TOML, with every `--set` and inherited key in place."""
        return tomlkit.dumps(self.written)


def load_run_file(path: str | Path, sets: Iterable[str] = ()) -> RunFile:
    """Read and check a run file.

    `[data]` and `[reward.<name>]` have classes of their own: `RunFile.structure` checks them.

    Args:
        path: the TOML file.
        sets: `a.b=value` texts that replace or add keys; a value that isn't TOML is a string.

    Raises:
        RunFileError: an unknown key, a wrong type, a path that can be none, or keys that
            contradict each other.
    """
    source = Source.read(Path(path), sets)
    written = _spell_out_rewards(source.tables())
    try:
        structure(Tables, written)  # so that what is inherited can add no problem
        written = _inherit(written)
        tables = structure(Tables, written)
    except Invalid as error:
        raise _invalid(error, source, written) from None
    if problems := [*paths_lead(tables, source.file), *contradictions(tables)]:
        raise source.error(problems)
    return RunFile(source=source, written=written, **attrs.asdict(tables, recurse=False))


def _invalid(error: Invalid, source: Source, tables: Table) -> RunFileError:
    """Return what is wrong; a key that is unknown may be one of the program's hyperparameters."""
    unknown = any(problem.unknown for problem in error.problems)
    hyperparameters = _hyperparameters(source, tables) if unknown else ()
    return source.error(map(with_off, with_homes(error.problems, hyperparameters)))


def _hyperparameters(source: Source, tables: Table) -> list[str]:
    """Return the names of the program's hyperparameters, if it can be imported."""
    try:
        given = structure(ProgramTable, tables.get("program", {}))
        file = program_file(given.file, source.file.parent.absolute())
        signature = load_program(file, given.name).signature
    except (Invalid, FlowrlError):
        return []
    return [p.name for p in signature.parameters.values() if p.kind is Parameter.KEYWORD_ONLY]


def _spell_out_rewards(tables: Table) -> Table:
    """Write `[reward] name = "path.py:f"`, or "http://…", as the table that it is short for."""
    reward = tables.get("reward")
    if not isinstance(reward, dict):
        return tables
    spelt = {
        key: {"http" if "://" in value else "function": value} if _is_given(key, value) else value
        for key, value in reward.items()
    }
    return tables | {"reward": spelt}


def _is_given(key: str, value: object) -> TypeGuard[str]:
    names = [field.name for field in attrs.fields(RewardTable)]
    return key not in names and isinstance(value, str) and ":" in value


def _inherit(tables: Table) -> Table:
    """Give `[optimizer.<role>]` the keys of `[optimizer]`, and `[eval.data]` those of `[data]`."""
    filled = dict(tables)
    if "optimizer" in tables:
        shared = {k: v for k, v in tables["optimizer"].items() if not isinstance(v, dict)}
        roles = {k: shared | v for k, v in tables["optimizer"].items() if isinstance(v, dict)}
        filled["optimizer"] = shared | roles
    if "eval" in tables:
        data, own = tables["data"], tables["eval"].get("data", {})
        base = data.get("prompts", {}) if _has_inputs(data) else data
        filled["eval"] = tables["eval"] | {"data": base | own}
    return filled


def _has_inputs(data: Table) -> bool:
    return bool(data) and all(isinstance(value, dict) for value in data.values())
