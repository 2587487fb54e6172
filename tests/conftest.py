"""What holds of every test: one thread, and no deadline for laws (a busy machine is no failure)."""

import torch
from hypothesis import settings

torch.set_num_threads(1)  # as `engines.threads` says by default; results depend on it
settings.register_profile("flowrl", deadline=None)
settings.load_profile("flowrl")
