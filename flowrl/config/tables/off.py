"""What to write for "off", where other tools take -1, 0 or None."""

import attrs

from flowrl.config.toml.structure import NO_NULL, Problem

OFF = {
    "top_k": "for all tokens write 0, or leave `top_k` out",
    "top_p": "for all tokens write 1, or leave `top_p` out",
    "temperature": "write 0 for greedy samples; left out, it has its default",
    "max_tokens": "a completion has a limit: write the most tokens that one may have",
    "max_prompt_tokens": "a prompt has a limit: write the most tokens that one may have",
    "min_tokens": "write 0 for none",
    "max_model_len": "leave `max_model_len` out for the model's positions",
    "max_grad_norm": "for gradients that aren't clipped write a large one, such as 1e9",
    "weight_decay": "write 0 for none",
    "kl_coef": "write 0 for no penalty",
    **dict.fromkeys(("dual_clip", "value_clip"), "for no clip write a large one, such as 1e9"),
    "checkpoint_every": "write 0 for a checkpoint at the end only",
    "limit": "leave `limit` out for all rows",
    "epochs": "leave `epochs` out for its default",
    "prompts": "leave `prompts` out for all of them",
}
"""By key, whatever its table; of a hyperparameter, by what it is called in most programs."""


def with_off(problem: Problem) -> Problem:
    """Return a problem; that of a value also says what to write for "off", if that is known."""
    if not problem.misfit:
        return problem
    key = problem.path[-1]
    off = OFF.get(key, f"leave `{key}` out for its default" if problem.hint == NO_NULL else "")
    return attrs.evolve(problem, hint="; ".join(filter(None, [problem.hint, off])))
