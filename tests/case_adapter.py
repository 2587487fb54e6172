"""Runs the cases of cases/cases.json through flowrl.functional: marshalling, no mathematics."""

import sys

import attrs
import torch

from flowrl.functional import (
    advantages,
    clipping,
    divergences,
    filters,
    group_advantages,
    importance,
    lengths,
    logprobs,
    losses,
    packing,
    progress,
    ragged,
    reductions,
    rewards,
    surrogate,
    tokens,
    whitening,
)

DTYPE = torch.float32 if "--f32" in sys.argv else torch.float64


def run(op, inputs, params, dtype=DTYPE):
    """Return the outputs of a case, as lists and numbers."""
    tensors = {name: _tensor(name, value, dtype) for name, value in inputs.items()}
    return {name: _plain(value) for name, value in globals()[f"run_{op}"](tensors, params).items()}


def _tensor(name, value, dtype):
    if name == "mask":
        return torch.tensor(value, dtype=torch.bool)
    if name == "group_ids":
        keys = list(dict.fromkeys(value))
        return torch.tensor([keys.index(key) for key in value])
    if name in FLOATS:
        return torch.tensor(_with_nan(value), dtype=dtype)
    if name.endswith("_per_rank") and name != "lengths_per_rank":
        return [_tensor(name.removesuffix("_per_rank"), rank, dtype) for rank in value]
    if name in INTEGERS:
        return torch.tensor(value, dtype=torch.int64)
    return value


# fmt: off
FLOATS = {
    "rewards", "values", "bootstrap", "scores", "logp", "ref_logp", "old_logp", "prox_logp",
    "rollout_logp", "train_logp", "advantages", "baseline", "loss_mat", "vpred", "old_values",
    "returns", "logits", "logits_p", "logits_q", "features", "W", "q", "k", "v",
}
INTEGERS = {
    "actions", "input_ids", "response_start", "response_len", "response_ids", "gen_len",
}
# fmt: on


def _with_nan(value):
    if isinstance(value, list):
        return [_with_nan(part) for part in value]
    return float("nan") if value is None else value


def _plain(value):
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _only(params, *names):
    return {name: params[name] for name in names if name in params}


def run_gae(i, p):
    out = advantages.gae(
        i["rewards"], i["values"], i["mask"], i.get("bootstrap"), **_only(p, "gamma", "lam")
    )
    return dict(zip(("advantages", "returns"), out, strict=True))


def run_discounted_returns(i, p):
    return {"returns": advantages.discounted_returns(i["rewards"], i["mask"], **p)}


def run_token_rewards(i, p):
    mask, penalty, extra = i["mask"], None, {}
    if "logp" in i:
        kl = divergences.kl(i["logp"], i["ref_logp"], None, mask, estimator=p["estimator"])
        penalty, extra = p["beta"] * kl, {"sequence_kl": reductions.row_sum(kl, mask)}
    placed = advantages.token_rewards(i["scores"], mask, penalty)
    return {
        "rewards": placed,
        "rows_without_tokens": advantages.rows_without_tokens(mask),
        **extra,
    }


def run_group_advantage(i, p):
    out = group_advantages.group_advantage(
        i["rewards"], sample_ids=i.get("sample_ids"), groups=i["group_ids"], **p
    )
    return {"advantages": out, "used": rewards.usable(i["rewards"])}


def run_rloo(i, p):
    return {"advantages": group_advantages.leave_one_out(i["rewards"], groups=i["group_ids"])}


def run_reinforce_plus_plus(i, p):
    whitening = _only(p, "ddof", "eps")
    return {
        "returns": advantages.discounted_returns(i["rewards"], i["mask"], gamma=p["gamma"]),
        "advantages": advantages.reinforce_plus_plus(
            i["rewards"], i["mask"], gamma=p["gamma"], **whitening
        ),
    }


def run_reinforce_plus_plus_baseline(i, p):
    out = advantages.reinforce_plus_plus_baseline(
        i["rewards"], i["mask"], groups=i["group_ids"], **_only(p, "ddof", "eps")
    )
    return {"advantages": out}


def run_remax(i, p):
    return {
        "returns": advantages.discounted_returns(i["rewards"], i["mask"]),
        "advantages": advantages.remax(i["rewards"], i["mask"], i["baseline"]),
    }


def run_opo(i, p):
    counts = torch.tensor(i["lengths"])
    return {"advantages": group_advantages.opo(i["rewards"], counts, groups=i["group_ids"])}


def run_masked_whiten(i, p):
    mean, var = whitening.moments(i["values"], i["mask"], ddof=p["ddof"])
    return {"whitened": whitening.whiten(i["values"], i["mask"], **p), "mean": mean, "var": var}


def run_masked_whiten_dist(i, p):
    shards = i["values_per_rank"]
    values = torch.cat([shard.flatten() for shard in shards])
    mask = torch.cat([rank.flatten() for rank in i["mask_per_rank"]])
    out = run_masked_whiten({"values": values, "mask": mask}, p)
    parts = out["whitened"].split([shard.numel() for shard in shards])
    whole = [part.view(shard.shape).tolist() for part, shard in zip(parts, shards, strict=True)]
    return {"whitened_per_rank": whole, "mean": out["mean"], "var": out["var"]}


def run_dynamic_filter(i, p):
    rounds = [[(group["uid"], group["rewards"]) for group in drawn] for drawn in i["rounds"]]
    return attrs.asdict(filters.dynamic_filter(rounds, **p))


def run_kl(i, p):
    logp = i["logp"].requires_grad_()
    old = i.get("old_logp") if p["gradient"] == "unbiased" else None
    out = divergences.kl(logp, i["ref_logp"], old, i["mask"], **p)
    return {"kl": out.detach(), "grad": _grad(out.sum(), logp)}


def run_kl_expectation(i, p):
    logits, reference = i["logits_p"].requires_grad_(), i["logits_q"]
    exact = divergences.kl_of_logits(logits, reference)
    out = {"exact": exact.detach(), "grad_exact": _grad(exact, logits)}
    out["grad_forward_kl"] = _grad(divergences.kl_of_logits(reference, logits), logits)
    for estimator in ("k1", "k2", "k3"):
        log_p, log_q = logprobs.log_softmax(logits), logprobs.log_softmax(reference)
        kl = divergences.kl(log_p, log_q, estimator=estimator)
        expected = (log_p.exp().detach() * kl).sum()
        out[f"mean_{estimator}"] = expected.detach()
        out[f"grad_{estimator}"] = _grad(expected, logits)
    return out


def run_adaptive_kl(i, p):
    coefficient, out = torch.tensor(p["init"], dtype=torch.float64), []
    for kl, samples in zip(i["kl"], i["n_steps"], strict=True):
        measured = torch.tensor(kl, dtype=torch.float64)
        coefficient = divergences.adaptive_kl(
            coefficient, measured, target=p["target"], horizon=p["horizon"], samples=samples
        )
        out.append(coefficient.item())
    return {"coef": out}


def _grad(value, of):
    return torch.autograd.grad(value, of, retain_graph=True)[0]


def _aggregation(p):
    if p.get("variant") == "gspo":  # one objective a sequence: always the mean over sequences
        return {"mode": "seq-mean-token-mean", **_only(p, "denominator")}
    return {"mode": p["agg"], **_only(p, "horizon", "denominator")}


def run_aggregate(i, p):
    matrix = i["loss_mat"].requires_grad_()
    loss = reductions.aggregate(matrix, i["mask"], **_aggregation(p))
    return {"loss": loss.detach(), "grad": _grad(loss, matrix)}


def _token_losses(logp, i, p):
    """Return the token losses of the variant, and its fractions clipped."""
    variant, mask, a = p["variant"], i["mask"], i["advantages"]
    clip = {"clip": p.get("clip_low"), "clip_high": p.get("clip_high")}
    if variant == "reinforce":
        return losses.reinforce(logp, a, mask), {}
    if variant == "cispo":
        ratio = (logp - i["old_logp"]).detach().exp()
        low = -torch.inf if clip["clip"] is None else 1 - clip["clip"]
        outside = ((ratio < low) | (ratio > 1 + clip["clip_high"])).to(ratio.dtype)
        fraction = reductions.token_mean(outside, mask)
        return losses.cispo(logp, i["old_logp"], a, mask, **clip), {"clip_frac": fraction}
    if variant == "decoupled":
        proximal, cap = i["prox_logp"], p["weight_cap"]
        loss = surrogate.decoupled(logp, proximal, i["old_logp"], a, mask, weight_cap=cap, **clip)
        return loss, {"clip_frac": clipping.clip_fraction(logp, proximal, a, mask, **clip)}
    if variant == "gspo":
        loss = surrogate.sequence_surrogate(logp, i["old_logp"], a, mask, **clip)
        ratio = surrogate.sequence_logratio(logp, i["old_logp"], mask)
        zero = torch.zeros_like(ratio)
        return loss, {"clip_frac": clipping.clip_fraction(ratio, zero, a, mask, **clip)}
    dual = _only(p, "dual_clip")
    loss = surrogate.clipped_surrogate(logp, i["old_logp"], a, mask, **clip, **dual)
    out = {"clip_frac": clipping.clip_fraction(logp, i["old_logp"], a, mask, **clip)}
    if dual.get("dual_clip") is not None:
        fraction = clipping.dual_clip_fraction(logp, i["old_logp"], a, mask, **clip, **dual)
        out["dual_clip_frac"] = fraction
    return loss, out


def run_policy_loss(i, p):
    logp = i["logp"].requires_grad_()
    token_losses, fractions = _token_losses(logp, i, p)
    loss = reductions.aggregate(token_losses, i["mask"], **_aggregation(p))
    return {"loss": loss.detach(), "grad": _grad(loss, logp), **fractions}


def run_value_loss(i, p):
    values = i["vpred"].requires_grad_()
    old, returns, mask = i["old_values"], i["returns"], i["mask"]
    token_losses = losses.clipped_value(values, old, returns, mask, clip=p["clip"])
    loss = reductions.aggregate(token_losses, mask, **_aggregation(p))
    out = {"loss": loss.detach(), "grad": _grad(loss, values)}
    if p["clip"] is not None:
        out["clip_frac"] = losses.value_clip_fraction(values, old, returns, mask, clip=p["clip"])
    return out


def _micro_losses(token_losses, mask, layout, p):
    """Return what each micro-batch must backward where the collective averages over ranks."""
    divisor = reductions.aggregate_divisor(mask, **_aggregation(p))
    return [
        [
            len(layout)
            * reductions.aggregate_total(token_losses(rows), mask[rows], mode=p["agg"])
            / divisor
            for rows in (torch.tensor(micro, dtype=torch.int64) for micro in rank)
        ]
        for rank in layout
    ]


def _averaged(micro_losses):
    return sum(loss for rank in micro_losses for loss in rank) / len(micro_losses)


def run_accumulate(i, p):
    matrix = i["loss_mat"].requires_grad_()
    micro = _micro_losses(lambda rows: matrix[rows], i["mask"], i["layout"], p)
    whole = reductions.aggregate(matrix, i["mask"], **_aggregation(p))
    return {
        "loss": whole.detach(),
        "grad": _grad(_averaged(micro), matrix),
        "micro_losses": [[loss.item() for loss in rank] for rank in micro],
    }


def run_accumulate_policy(i, p):
    weights = i["W"].requires_grad_()
    named = ("old_logp", "advantages", "mask", "prox_logp")

    def token_losses(rows):
        logits = i["features"][rows] @ weights
        logp = logprobs.token_logprobs(
            logits, i["actions"][rows], temperature=p.get("temperature", 1.0)
        )
        return _token_losses(logp, {k: i[k][rows] for k in named if k in i}, p)[0]

    loss = _averaged(_micro_losses(token_losses, i["mask"], i["layout"], p))
    return {"loss": loss.detach(), "grad_W": _grad(loss, weights)}


def run_objective(i, p):
    mask = i["mask"]
    grouped = group_advantages.group_advantage(
        i["rewards"], groups=i["group_ids"], **_only(p, "norm_by_std", "ddof", "eps")
    )
    logp = i["logp"].requires_grad_()
    spread = grouped[:, None].expand(mask.shape)
    loss, _ = _token_losses(logp, {**i, "advantages": spread}, p)
    if p["beta"]:
        estimator = p.get("estimator", "k3")
        kl = divergences.kl(logp, i["ref_logp"], None, mask, estimator=estimator)
        loss = loss + p["beta"] * kl
    loss = reductions.aggregate(loss, mask, **_aggregation(p))
    return {"advantages": grouped, "loss": loss.detach(), "grad": _grad(loss, logp)}


def run_is_weights(i, p):
    weights, keep = importance.importance_weights(
        i["train_logp"], i["rollout_logp"], i["mask"], **p
    )
    return {"weights": weights, "keep": keep}


def run_corrected_policy_loss(i, p):
    mask, logp = i["mask"], i["logp"].requires_grad_()
    options = _only(p, "level", "mode", "low", "high")
    weights, keep = importance.importance_weights(i["old_logp"], i["rollout_logp"], mask, **options)
    loss = weights * _token_losses(logp, i, {"variant": "ppo", **p})[0]
    counted = mask if p["rejected_in_denominator"] else keep
    loss = reductions.aggregate(loss, counted, **_aggregation(p))
    return {"loss": loss.detach(), "grad": _grad(loss, logp), "weights": weights, "keep": keep}


def run_staleness(i, p):
    counts = torch.tensor([len(row) for row in i["versions"]])
    versions = torch.tensor([version for row in i["versions"] for version in row])
    lag, accept = importance.staleness(versions, lengths=counts, **p)
    return {"lag": lag, "accept": accept}


def run_entropy(i, p):
    return {"entropy": divergences.entropy_of_logits(i["logits"], **p)}


def run_response_logprobs(i, p):
    out = logprobs.response_logprobs(
        i["logits"], i["input_ids"], i["response_start"], i["response_len"], **p
    )
    return {"logp": out}


def run_loss_mask(i, p):
    limit = torch.tensor([reason == "length" for reason in i["finish_reason"]])
    out = tokens.loss_mask(i["response_ids"], i["gen_len"], limit, **p)
    return dict(zip(("mask", "truncated", "lengths"), out, strict=True))


def run_pack(i, p):
    packed = packing.pack(ragged.Ragged.of_rows(i["sequences"], torch.int64), **p)
    return {name: getattr(packed, name) for name in packed.__slots__ if name[0] != "_"}


def run_packed_attention(i, p):
    return {"out": packing.packed_attention(i["q"], i["k"], i["v"], torch.tensor(i["cu_seqlens"]))}


def run_assemble_multiturn(i, p):
    turns = [tokens.Turn(**turn) for turn in i["turns"]]
    return attrs.asdict(tokens.assemble_multiturn(i["prompt_ids"], turns))


def run_reward_combine(i, p):
    total = rewards.combine_rewards(i["rewards"], weights=p["weights"])
    scorable = rewards.usable(total).tolist()
    numbers = [x if there else None for x, there in zip(total.tolist(), scorable, strict=True)]
    return {"total": numbers, "scorable": scorable}


def run_overlong_penalty(i, p):
    counts = torch.tensor(i["lengths"], dtype=torch.float64)
    return {"penalty": lengths.overlong_penalty(counts, **p)}


def run_balance(i, p):
    return {"partition": lengths.balance(i["lengths"], p["k"])}


def run_micro_batches(i, p):
    return {"partition_per_rank": lengths.micro_batches_per_rank(i["lengths_per_rank"], **p)}


def run_split_even(i, p):
    return {"sizes": lengths.split_even(i["n"], p["k"])}


def run_resume_position(i, p):
    return attrs.asdict(progress.resume_position(i["global_step"], **p))
