"""Options of the command line that say what a run file may say too."""

import re
from collections.abc import Sequence
from pathlib import Path

import tomlkit

from flowrl.config.toml.source import Assignment
from flowrl.config.toml.structure import dotted
from flowrl.errors import RunFileError

LENGTHS = re.compile(
    r"(?P<prompt>\d+)(/(?P<prompt_max>\d+))?:(?P<response>\d+)(/(?P<response_max>\d+))?"
)


def settings(
    cluster: str | None,
    lengths: str | None,
    profile: Path | None = None,
    sets: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return `sets`, and over them what `--cluster`, `--lengths` and `--profile` set, `key=value`.

    Raises:
        RunFileError: the lengths have another form, or a set gives what an option does.
    """
    options = {} if cluster is None else {f"cluster.machines={_text(cluster)}": "--cluster"}
    if profile is not None:
        options[f"workload.profile={_text(str(profile.absolute()))}"] = "--profile"
    if lengths is not None:
        options |= dict.fromkeys(_lengths(lengths), "--lengths")
    given = [Assignment.parse(text) for text in sets]
    for text, option in options.items():
        path = Assignment.parse(text).path
        for each in given:
            if each.gives(path):
                raise RunFileError(
                    f"`{option}` and a `--set` both give `{dotted(path)}`",
                    where=f"  --set {each.text}",
                    hint="leave one of them out",
                )
    return (*sets, *options)


def _text(value: str) -> str:
    """Return a text as TOML, whatever quotes it has."""
    return tomlkit.string(value).as_string()


def _lengths(lengths: str) -> list[str]:
    """Return the tokens of prompts and responses as `key=value`."""
    match = LENGTHS.fullmatch(lengths)
    if not match:
        raise RunFileError(
            f"`--lengths {lengths}` gives no lengths",
            hint="write those of prompts and responses: `256:600`, or `256:600/2048` at most",
        )
    found = []
    for name in ("prompt", "response"):
        mean, most = match[name], match[f"{name}_max"]
        text = f"{{ mean = {mean}, max = {most} }}" if most else mean
        found.append(f"workload.{name}_tokens={text}")
    return found
