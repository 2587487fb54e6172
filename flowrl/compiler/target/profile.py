"""What share of a data sheet's speeds the engines reach."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from flowrl.errors import DataError, nearest

Key = tuple[str, str]
"""A GPU's name and a kind of task; `*` is any."""

ANY = "*"
PROFILE = "profile.json"
"""A run's profile, in its folder."""
FORM = 'write {"H200 update": {"flops": 0.5, "hbm": 0.4}, ...}'


@attrs.frozen
class Speeds:
    """How near a kind of task comes to what the hardware can do.

    Attributes:
        flops: share of the GPU's bfloat16 operations a second in large matrices.
        hbm: share of its memory's bandwidth.
        links: share of a link's bandwidth.
        start: seconds before each execution: scheduling and packing.
        launch: seconds that Python takes to launch one layer's forward pass, kernel by kernel.
        step: seconds that an engine's scheduler takes for each decode step.
        sequence: seconds that it takes besides for each running sequence.
    """

    flops: float = 0.8
    hbm: float = 0.45
    links: float = 0.65
    start: float = 0.02
    launch: float = 8.8e-4
    step: float = 0.002
    sequence: float = 2.2e-5

    def slowed(self, ratio: float) -> "Speeds":
        """Return speeds at which every term takes `ratio` times as long."""
        shares = {name: getattr(self, name) / ratio for name in ("flops", "hbm", "links")}
        waits = {
            name: getattr(self, name) * ratio for name in ("start", "launch", "step", "sequence")
        }
        return Speeds(**shares, **waits)


DEFAULT: Mapping[Key, Speeds] = MappingProxyType(
    {
        (ANY, "generate"): Speeds(hbm=0.85),
        (ANY, "offload"): Speeds(links=0.85),
        (ANY, "controller"): Speeds(start=3e-4),
        (ANY, ANY): Speeds(),
    }
)
"""Measured on H200s (docs/compiler.md); other GPUs are taken to reach the same shares.

Large matrices reach 790 TFLOP/s of 989, copies 4.3 TB/s of 4.8. The ops between matrices, as
kernels of their own, reach half of the latter in training; decoding streams its weights and caches.
Between two GPUs NCCL reaches 260 to 330 GB/s of 450; a GPU and its host 54 of 64.
"""


@attrs.frozen
class Profile:
    """Speeds by GPU and kind of task; what is missing is that of any GPU, or any kind."""

    speeds: Mapping[Key, Speeds] = DEFAULT

    def of(self, gpu: str, kind: str) -> Speeds:
        """Return the speeds of a kind of task on a GPU."""
        for key in ((gpu, kind), (ANY, kind), (gpu, ANY)):
            if key in self.speeds:
                return self.speeds[key]
        return self.speeds[ANY, ANY]

    def fitted(
        self, predictions: Mapping[Key, float], measurements: Mapping[Key, float]
    ) -> "Profile":
        """Return the profile that would have predicted what was measured.

        Args:
            predictions: seconds by GPU and kind, predicted with this profile.
            measurements: seconds measured, of the same work.
        """
        ratios = {key: measurements[key] / predictions[key] for key in sorted(measurements)}
        new = {key: self.of(*key).slowed(ratio) for key, ratio in ratios.items()}
        return Profile({**self.speeds, **new})

    def to_json(self) -> str:
        """Return the profile as text."""
        rows = {" ".join(key): attrs.asdict(self.speeds[key]) for key in sorted(self.speeds)}
        return json.dumps(rows, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = "") -> "Profile":
        """Read a profile; what it lacks is the default's.

        Raises:
            DataError: the text is no profile.
        """
        try:
            rows = json.loads(text)
        except ValueError as error:
            raise DataError(f"a profile is JSON: {error}", where=where, hint=FORM) from error
        if not isinstance(rows, dict):
            raise DataError(f"a profile is a table; got {rows}", where=where, hint=FORM)
        read = {_key(name, where): _speeds(name, row, where) for name, row in rows.items()}
        return cls({**DEFAULT, **read})

    def save(self, file: Path) -> None:
        """Write the profile."""
        file.write_text(self.to_json())

    @classmethod
    def load(cls, file: Path) -> "Profile":
        """Read a profile's file, or that in the folder of a run.

        Raises:
            DataError: it cannot be read or holds no profile.
        """
        if file.is_dir():
            file = file / PROFILE
            if not file.exists():
                raise DataError(
                    f"there is no profile in the folder `{file.parent}`",
                    hint=f"a run writes `{PROFILE}` with each checkpoint, if its `[cluster] "
                    "machines` names what it runs on",
                )
        try:
            text = file.read_text()
        except OSError as error:
            raise DataError(f"`{file}` cannot be read: {error}") from error
        return cls.from_json(text, where=f"  {file}")


def _key(name: str, where: str) -> Key:
    gpu, space, kind = name.partition(" ")
    if not space:
        raise DataError(f"`{name}` names no GPU and kind of task", where=where, hint=FORM)
    return gpu, kind


def _speeds(name: str, row: Any, where: str) -> Speeds:
    """Read the speeds of one kind of task."""
    known = [field.name for field in attrs.fields(Speeds)]
    if not isinstance(row, dict):
        raise DataError(f"`{name}` must be a table of speeds; got {row}", where=where, hint=FORM)
    for key, value in row.items():
        if key not in known:
            problem = f"`{name}` has an unknown speed `{key}`{nearest(key, known)}"
            raise DataError(problem, where=where, hint=f"speeds are {', '.join(known)}")
        if not isinstance(value, int | float) or value <= 0:
            problem = f"`{key}` of `{name}` must be a number above 0; got {value}"
            raise DataError(problem, where=where, hint=FORM)
    return Speeds(**row)
