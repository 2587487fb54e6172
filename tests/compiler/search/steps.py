"""PPO's step on small and large machines, as the search sees it."""

from flowrl.compiler.hardware import Machines
from flowrl.compiler.shapes import known_shape
from flowrl.compiler.target import Lengths, Settings, Target, Workload
from flowrl.compiler.tasks import Seat, Task

TOKENS = Lengths.of(512)


def task(name, kind, seat, *after, times=1):
    role, use = seat.split(".")
    return Task(name, kind, Seat(role, use), 256 / times, TOKENS, TOKENS, times, after=after)


PPO = (
    task("%0", "generate", "policy.generate"),
    task("%1", "rewards", "reward.score", 0),
    task("%2", "values", "critic.score", 0),
    task("%3", "logprobs", "reference.score", 0),
    task("%4/%0", "update", "policy.train", 1, 2, 3, times=4),
    task("%4/%1", "update", "critic.train", 1, 2, 3, times=4),
)


def target(machines, model, **settings):
    """Return a target of machines, and of one model for all four roles."""
    shapes = {role: known_shape(model) for role in ("policy", "critic", "reference", "reward")}
    work = Workload(
        prompts=256, prompt_tokens=TOKENS, response_tokens=TOKENS, default=Settings(**settings)
    )
    return Target(Machines.parse(machines), shapes, work)
