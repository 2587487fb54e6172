"""What holds of every test.

One thread; no limits of time for laws, since a busy machine is no failure; the same examples in
every run. `pytest --hypothesis-profile=explore` looks for thousands of new ones. What tests start can
be interrupted, even if they run in the background of a shell, which has its jobs ignore that.
"""

import signal

import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)  # as `engines.threads` says by default; results depend on it
signal.signal(signal.SIGINT, signal.default_int_handler)
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("flowrl", UNTIMED, derandomize=True)
settings.register_profile("explore", UNTIMED, max_examples=3000)
settings.load_profile("flowrl")
