"""Programs placed on machines, ready to be simulated."""

import pytest

import flowrl as fl
from flowrl.compiler.cluster import Cluster
from flowrl.compiler.hardware import Machines
from flowrl.compiler.planning import plan_step
from flowrl.compiler.search import Constraints
from flowrl.compiler.shapes import known_shape
from flowrl.compiler.simplify import simplify
from flowrl.compiler.target import Lengths, Profile, Target, Workload
from flowrl.compiler.target.profile import DEFAULT, Speeds
from flowrl.config.programs import load_program
from flowrl.ops.uses import uses_of
from flowrl.simulate import simulate

FIXED = Lengths.of(600)


class Case:
    """A program as traced, and its plan."""

    def __init__(self, program, machines, call, constraints, hyperparameters, workload):
        program = load_program(program) if isinstance(program, str) else program
        self.traced = fl.trace(program, **hyperparameters)
        uses = uses_of(simplify(self.traced.graph, Cluster()))
        shapes = {role: known_shape("Qwen/Qwen2.5-1.5B", its.head) for role, its in uses.items()}
        profile = Profile({**DEFAULT, ("*", "controller"): Speeds(start=call)})
        given = Workload(**{"prompts": 128, "response_tokens": FIXED} | workload)
        target = Target(Machines.parse(machines), shapes, given, profile)
        self.plan = plan_step(self.traced.graph, target, lambda seats: constraints)

    def simulate(self, steps=2, **options):
        """Simulate it."""
        return simulate(self.plan, self.traced.inputs, steps, **options)


@pytest.fixture
def case():
    """Return a function that places a program; the controller's calls cost nothing by default."""

    def case(
        program, machines="8xH100", call=1e-9, constraints=None, hyperparameters=None, **workload
    ):
        constraints = constraints or Constraints()
        return Case(program, machines, call, constraints, hyperparameters or {}, workload)

    return case
