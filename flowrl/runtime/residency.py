"""Residency carried out: the engines of a pool that share a device take turns on it."""

from functools import partial
from typing import Any

import attrs
import torch

from flowrl.errors import EngineError
from flowrl.ir.action import ENTERS, LEAVES, Does
from flowrl.ir.plan import Pool


@attrs.frozen
class Stay:
    """What an engine is for, and what becomes of it meanwhile.

    Attributes:
        seat: the use of a model that it serves, `policy.train`.
        residency: what becomes of it while another one works.
    """

    seat: str
    residency: str


@attrs.define(eq=False)
class Room:
    """The engines of a pool in this process, of which one works at a time.

    What a plan's actions say of a step is done here, op by op: the engine that worked last leaves,
    that of the op enters. All ranks of a pool run the same ops, so do so in the same order.

    Attributes:
        pool: says what becomes of whom. If of nobody, all stay and nothing is done.
        stays: what each engine is for.
        working: the engine that has the device.
        done: who has done what in this step.
    """

    pool: Pool = attrs.field(factory=partial(Pool, ""))
    stays: dict[Any, Stay] = attrs.field(factory=dict)
    working: Any = None
    done: list[tuple[str, Does]] = attrs.field(factory=list)

    def begin(self) -> None:
        """Forget who did what: a step begins."""
        self.done.clear()

    def admit(self, engine: Any, role: str, use: str) -> None:
        """Take in an engine. One that leaves while others work does so until its first op.

        Raises:
            EngineError: it can't leave.
        """
        if not self.pool.residencies:
            return
        self.stays[engine] = stay = Stay(f"{role}.{use}", self.pool.residency_of(role, use))
        if LEAVES[stay.residency] is Does.SLEEP:
            return
        if not hasattr(engine, "sleep"):
            raise EngineError(
                f"`{stay.seat}` is to be `{stay.residency}` while others work; its engine, "
                f"{type(engine).__name__}, has no `sleep`",
                hint="let it be `resident`, or give the engine `sleep` and `wake`",
            )
        self._leave(engine)

    def turns(self, engine: Any) -> bool:
        """Whether the device goes to another engine when this one works."""
        return engine in self.stays and engine is not self.working

    def take(self, engine: Any) -> Any:
        """Give an engine the device; return the one that has dropped its weights for it, if any."""
        last = self.working
        if last is not None:
            self._leave(last)
        self._enter(engine)
        self.working = engine
        return last if last is not None and self._does(last) is Does.DROP else None

    def brought(self, engine: Any) -> None:
        """Take note that an engine has got its weights from where they are trained."""
        if engine in self.stays:
            self.done.append((self.stays[engine].seat, Does.BRING))

    def _leave(self, engine: Any) -> None:
        does = self._does(engine)
        if does is not Does.SLEEP:
            engine.sleep(keep=does is Does.OFFLOAD)
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # what enters may take its memory past torch's
        self.done.append((self.stays[engine].seat, does))

    def _enter(self, engine: Any) -> None:
        if self._does(engine) is not Does.SLEEP:
            engine.wake()
        stay = self.stays[engine]
        self.done.append((stay.seat, ENTERS[stay.residency]))

    def _does(self, engine: Any) -> Does:
        return LEAVES[self.stays[engine].residency]
