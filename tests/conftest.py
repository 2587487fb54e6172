"""What holds of every test.

One thread; no deadline for laws, since a busy machine is no failure; the same examples in every
run. `pytest --hypothesis-profile=explore` looks for thousands of new ones.
"""

import torch
from hypothesis import settings

torch.set_num_threads(1)  # as `engines.threads` says by default; results depend on it
settings.register_profile("flowrl", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=3000)
settings.load_profile("flowrl")
