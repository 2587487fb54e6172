"""Hyperparameters with which each program takes steps on a batch of four prompts."""

SIZES = {"samples": 2, "minibatch": 4, "groups": 3}
"""Of each program that has them: a few samples, in two minibatches."""
OWN = {
    "clip_cov": {"low": -5.0},
    "dapo": {"overlong": (6, 4)},
    "ppo": {"minibatch": 2},
}
"""What a program needs besides; one without an entry is tested too."""


def small(program):
    """Return hyperparameters that make a program's steps small."""
    sizes = {name: size for name, size in SIZES.items() if name in program.defaults()}
    return sizes | OWN.get(program.name, {})
