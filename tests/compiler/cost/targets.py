"""Targets and tasks for the tests of costs."""

from flowrl.compiler.hardware import Machines
from flowrl.compiler.target import Lengths, Profile, Settings, Target, Workload
from flowrl.compiler.tasks import Seat, Task

USES = {"generate": "generate", "update": "train", "snapshot": "train", "ema": "train"}


def target(machines="8xH100", *, prompts=64, prompt=256, response=600, profile=None, **settings):
    return Target(
        Machines.parse(machines) if isinstance(machines, str) else machines,
        {},
        Workload(prompts, Lengths.of(prompt), Lengths.of(response), default=Settings(**settings)),
        profile or Profile(),
    )


def task(kind, sequences, passes=1):
    seat = Seat("policy", USES.get(kind, "score"))
    length = Lengths.of(1)  # costs take the workload's
    return Task("%0", kind, seat, sequences, length, length, passes=passes)
