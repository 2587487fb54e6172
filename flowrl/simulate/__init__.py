"""The runtime's controller on simulated workers: how long a planned step takes, before it runs."""

from flowrl.simulate.simulation import RESTART, Failures, Simulation, simulate

__all__ = ["RESTART", "Failures", "Simulation", "simulate"]
