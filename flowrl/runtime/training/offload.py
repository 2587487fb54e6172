"""An optimizer's state in host memory (ZeRO-Offload, Ren et al. 2021, arXiv:2101.06840)."""

from typing import Any

import torch
from torch.optim import Optimizer


def offload_moments(optimizer: Optimizer) -> None:
    """Keep an optimizer's running means in host memory; each step is taken where the weights are.

    All of them are there for the time of a step, when no activations are.
    """

    def fetch(*_: Any) -> None:
        for parameter, state in optimizer.state.items():
            _move(state, parameter.device)

    def put_away(*_: Any) -> None:
        for state in optimizer.state.values():
            _move(state, torch.device("cpu"))
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # whoever reads them next may do so on the host

    optimizer.register_step_pre_hook(fetch)
    optimizer.register_step_post_hook(put_away)
    optimizer.register_load_state_dict_post_hook(put_away)


def _move(state: dict[str, Any], device: torch.device) -> None:
    """Move what has the form of a parameter; the count of steps stays where it is."""
    for name, x in state.items():
        if x.dim():
            state[name] = x.to(device, non_blocking=True)  # to the host: into pinned memory
