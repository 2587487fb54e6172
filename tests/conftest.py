"""What holds of every test.

One thread; no limits of time for laws, since a busy machine is no failure; the same examples in
every run. `pytest --hypothesis-profile=explore` looks for thousands of new ones. What tests start can
be interrupted, even if they run in the background of a shell, which has its jobs ignore that.

When processes end and who hears of it first, no test chooses: one that starts some is tried a second
time if it fails. At most two are in a run, and the summary shows what failed: it is to be mended.
"""

import signal
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)  # as `engines.threads` says by default; results depend on it
signal.signal(signal.SIGINT, signal.default_int_handler)
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("flowrl", UNTIMED, derandomize=True)
settings.register_profile("explore", UNTIMED, max_examples=3000)
settings.load_profile("flowrl")

ON_RAY = Path(__file__).parent / "runtime" / "ray"


def pytest_collection_modifyitems(items):
    """Have the tests that start processes tried a second time."""
    for item in items:
        if ON_RAY in item.path.parents or item.get_closest_marker("processes"):
            item.add_marker(pytest.mark.flaky(reruns=1))
