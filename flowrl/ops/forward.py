"""Run a model forward: sample from it, or read log-probabilities, values and rewards."""

import math
from collections.abc import Sequence
from typing import Any

from flowrl.errors import Location
from flowrl.ir.graph import Model, Value
from flowrl.ir.records import RECORDS, Prompts, Rollouts, fields_of, shown
from flowrl.ir.trace import bind, builder_of
from flowrl.ops.correction import recompute, take_rollouts
from flowrl.ops.data import fresh_axes
from flowrl.ops.expect import at_least_one, expect, in_interval, outside_loss, refuse
from flowrl.ops.model import (
    PLAIN,
    BootstrapValues,
    Collision,
    Generate,
    Logprobs,
    Rewards,
    Score,
    Values,
)
from flowrl.ops.reward import combine_rewards


def generate(
    policy: Model,
    prompts: Prompts,
    *,
    n: int = 1,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    stop: str | Sequence[str] | None = None,
) -> Rollouts:
    """Sample completions of each prompt.

    Args:
        policy: the model to sample from.
        prompts: i32[prompt, context].
        n: samples a prompt.
        temperature: what the logits are divided by; 0 is greedy. Here and below, None takes the
            run file's `[engines.<role>.generate]`, and that is 1 unless it says otherwise.
        top_p: sample from the likeliest tokens that hold this probability; 1 is off.
        top_k: sample from this many likeliest tokens; 0 is off.
        max_tokens: the limit of a sample's length, in tokens.
        min_tokens: no end before so many tokens; 0 is off. Like top_p and top_k it changes the
            distribution that is sampled from.
        stop: strings that end a sample; None takes the run file's.

    Returns:
        Rollouts on the fresh axes `sample` and `token`.

    Raises:
        ProgramError: an option is out of range.
    """
    expect("generate", "policy", policy, Model)
    expect("generate", "prompts", prompts, Prompts)
    builder = builder_of([policy], "generate")
    outside_loss("generate", builder)
    silent = {**PLAIN, **builder.root.sampling.get(policy.role, {})}
    given = dict(temperature=temperature, top_p=top_p, top_k=top_k, min_tokens=min_tokens)
    chosen: dict[str, Any] = {k: silent[k] if v is None else v for k, v in given.items()}
    at_least_one("generate", "n", n, "n counts the samples of each prompt")
    _check_sampling(max_tokens, **chosen)
    stops = _stops(stop)
    loc = Location.of_caller()
    axes = (builder.axis("sample", "generate", loc), builder.axis("token", "generate", loc))
    number = builder.number("draw")
    op = Generate(n=n, **chosen, max_tokens=max_tokens, stop=stops, axes=axes, number=number)
    builder.root.sizes[axes[0]] = n
    rollouts = Rollouts(prompts, *bind(op, policy, prompts.context, prompts.rows))
    return recompute(builder, policy, rollouts)


def _check_sampling(
    max_tokens: int | None, *, temperature: Any, top_p: Any, top_k: Any, min_tokens: Any
) -> None:
    in_interval("generate", "[0, inf)", temperature=temperature, hint="0 is greedy")
    in_interval("generate", "(0, 1]", top_p=top_p, hint="1 is off")
    in_interval("generate", "[0, inf)", top_k=top_k, hint="0 is off")
    if max_tokens is not None:
        at_least_one("generate", "max_tokens", max_tokens, "it limits the length of a sample")
    most = math.inf if max_tokens is None else max_tokens
    if not isinstance(min_tokens, int) or not 0 <= min_tokens <= most:
        limit = "" if max_tokens is None else f", up to max_tokens={max_tokens}"
        wanted = f"an integer of at least 0{limit}"
        refuse("generate", f"`min_tokens` must be {wanted}; got {min_tokens!r}", "0 is off")


def _stops(stop: Any) -> tuple[str, ...] | None:
    given = (stop,) if isinstance(stop, str) else stop
    if given is None:
        return None
    if not isinstance(given, list | tuple) or not all(isinstance(s, str) and s for s in given):
        refuse(
            "generate",
            f"`stop` must be strings of at least one character; got {stop!r}",
            'write `stop="</answer>"`, or several in a list',
        )
    return tuple(given)


def logprobs(model: Model, rollouts: Any, *, temperature: float | None = None) -> Value:
    """Return the log-probability of each token under a model, by a forward pass.

    Args:
        model: any language model with the tokenizer of the rollouts.
        rollouts: rollouts, examples, pairs or a record with their fields.
        temperature: what the logits are divided by; that of the rollouts by default.

    Returns:
        f32[prompt, sample, token], in nats, of the whole distribution (no top_p, no top_k).
    """
    expect("logprobs", "rollouts", rollouts, *RECORDS)
    in_interval("logprobs", "(0, inf)", temperature=temperature)
    op = Logprobs(temperature_of(rollouts) if temperature is None else temperature)
    return bind(op, model, rollouts.prompts.context, rollouts.tokens)[0]


def collision(model: Model, rollouts: Any) -> Value:
    """Return the chance that two draws at a token's place are the same, by a forward pass.

    Args:
        model: any language model with the tokenizer of the rollouts.
        rollouts: rollouts, examples, pairs or a record with their fields.

    Returns:
        f32[prompt, sample, token], the sum over the vocabulary of squared probabilities, at the
        temperature of the rollouts; in (0, 1].

    Source: `ops.optimal_token_baseline` needs it (Li et al. 2026, arXiv:2602.07078).
    """
    expect("collision", "rollouts", rollouts, *RECORDS)
    op = Collision(temperature_of(rollouts))
    return bind(op, model, rollouts.prompts.context, rollouts.tokens)[0]


def values(critic: Model, rollouts: Any) -> Value:
    """Return the critic's value of the state before each token.

    Args:
        critic: a model with a value head.
        rollouts: rollouts or a record with their fields.

    Returns:
        f32[prompt, sample, token], in reward units.
    """
    expect("values", "rollouts", rollouts, *RECORDS)
    return bind(Values(), critic, rollouts.prompts.context, rollouts.tokens)[0]


def bootstrap_values(critic: Model, rollouts: Any) -> Value:
    """Return the critic's value of the state after each sample that the token limit cut off.

    What `ops.gae` takes as `bootstrap`: a sample that was cut off would have gone on, so what it
    had to come is the critic's to say; one that ended has nothing to come. Only the truncated
    samples go through the critic.

    Args:
        critic: a model with a value head, the one of `ops.values`.
        rollouts: rollouts or a record with their fields.

    Returns:
        f32[prompt, sample], in reward units: the value head's number at the sample's last token
        where `rollouts.truncated`, else 0.

    Source: Pardo et al. 2018, "Time limits in reinforcement learning", arXiv:1712.00378.
    """
    expect("bootstrap_values", "rollouts", rollouts, *RECORDS)
    args = (critic, rollouts.prompts.context, rollouts.tokens, rollouts.truncated)
    return bind(BootstrapValues(), *args)[0]


def score(
    by: str | Model, rollouts: Rollouts, *, per: str = "sample", names: tuple[str, ...] = ()
) -> tuple[Rollouts, Value]:
    """Return the rewards of rollouts, and the rollouts that have one.

    Args:
        by: the name of a reward of the run file, a function or a model there; or a model of the
            program with a reward head.
        rollouts: what to score.
        per: "sample", or "token" for a model of the program with a token reward head.
        names: several rewards of the run file at once; `by` is then only a label.

    Returns:
        The rollouts on fresh axes, less the groups dropped for a failed reward, and
        f32[prompt, sample], with a last axis `reward` for `names`, or f32[prompt, sample, token].
        A model of the program drops nothing: then the rollouts are the same. The mean of a named
        reward is a metric of the program, under the name; of a second scoring by that name as
        `name'2`.

    Raises:
        ProgramError: `per` is neither, or "token" from a function.
    """
    expect("score", "rollouts", rollouts, Rollouts)
    _check_scorer(by, per)
    if isinstance(by, Model):
        return rollouts, _rewards(by, rollouts, per)
    builder = builder_of([rollouts.tokens], "score")
    outside_loss("score", builder)
    scored = [rollouts.prompts.rows, rollouts.tokens, rollouts.prompts.context]
    pairs, origin = fresh_axes(builder, scored, "score", whole=True), rollouts.logprobs.origin
    axis = builder.axis("reward", "score", Location.of_caller()) if names else None
    models = builder.models_of(names or (by,))
    given = [_rewards(model, rollouts, "sample") for model in models.values()]
    op = Score(names or (by,), origin.model if origin else "", pairs, axis, tuple(models))
    rewards, kept = bind(op, rollouts.prompts.rows, rollouts.tokens, *given)
    builder.report(by, rewards)
    for name in names:
        weights = tuple(float(name == other) for other in names)
        builder.report(f"{by}/{name}", combine_rewards(rewards, weights=weights))
    return take_rollouts(builder, kept, rollouts), rewards


def _check_scorer(by: Any, per: str) -> None:
    if not isinstance(by, str | Model):
        refuse(
            "score",
            f"`by` must be the name of a reward, or a model; got {shown(by)}",
            "a reward function gets a name in the run file: `[reward.name]`",
        )
    if per not in ("sample", "token") or (per == "token" and isinstance(by, str)):
        refuse(
            "score",
            f"`per` must be `sample`, or `token` for a model; got {per!r}",
            "a reward function gives one number a completion",
        )


def _rewards(model: Value, rollouts: Rollouts, per: str) -> Value:
    rows = (rollouts.prompts.rows,) if per == "sample" else ()
    return bind(Rewards(per), model, rollouts.prompts.context, rollouts.tokens, *rows)[0]


def temperature_of(rollouts: Any) -> float:
    """Return the temperature that rollouts were sampled at; 1 for greedy ones and for data."""
    logprobs = fields_of(rollouts).get("logprobs")
    origin = None if logprobs is None else logprobs.origin
    return origin.temperature or 1.0 if origin else 1.0
