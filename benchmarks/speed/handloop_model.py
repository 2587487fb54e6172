"""The model that is trained: its logprobs, their loss and gradients, and AdamW."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM
from work import Work

CHUNK = 8192
"""Tokens whose logits exist at once."""


def load(work: Work, device: str) -> Any:
    """Return the model, on a GPU with compiled layers."""
    model = AutoModelForCausalLM.from_pretrained(work.model, dtype=torch.bfloat16).to(device)
    model.train()
    if device == "cuda":
        for layer in model.model.layers:
            layer.compile(dynamic=False)
    return model


def states(model: Any, batch: Tensor, work: Work) -> Tensor:
    """Return f[row, token, hidden] of a batch, the states by which each sampled token is told."""
    hidden = model.model(input_ids=batch, use_cache=False).last_hidden_state
    told: Tensor = hidden[:, work.prompt_tokens - 1 : -1]
    return told


def spoken(model: Any, hidden: Tensor, tokens: Tensor) -> Tensor:
    """Return f32[token], the logprob of each, of f[token, hidden] and i64[token]."""
    logits = functional.linear(hidden, model.lm_head.weight).float()
    return logits.gather(1, tokens[:, None])[:, 0] - torch.logsumexp(logits, -1)


@torch.no_grad()
def logprobs(model: Any, batch: Tensor, work: Work) -> Tensor:
    """Return f32[row * token], the logprobs of a microbatch's samples."""
    hidden = states(model, batch, work).flatten(0, 1)
    tokens = batch[:, work.prompt_tokens :].flatten()
    parts = zip(hidden.split(CHUNK), tokens.split(CHUNK), strict=True)
    return torch.cat([spoken(model, *part) for part in parts])


def update(
    model: Any,
    batches: Sequence[Tensor],
    advantages: Sequence[Tensor],
    before: Sequence[Tensor] | None,
    work: Work,
) -> None:
    """Add up the gradients of the clipped surrogate's mean over all tokens.

    Args:
        model: the policy.
        batches: microbatches, i64[row, token].
        advantages: of each one's rows.
        before: old logprobs of each one's tokens; None if they are those of this policy.
        work: the workload.
    """
    for i, batch in enumerate(batches):
        hidden = states(model, batch, work)
        leaf = hidden.detach().requires_grad_()
        signs = advantages[i][:, None].expand(-1, work.tokens).flatten()
        old = before[i].split(CHUNK) if before else None
        parts = _chunks(leaf.flatten(0, 1), batch[:, work.prompt_tokens :].flatten(), signs)
        for j, (states_, tokens, sign) in enumerate(parts):
            new = spoken(model, states_, tokens)
            ratio = torch.exp(new - (old[j] if old else new.detach()))
            clipped = ratio.clamp(1 - work.clip, 1 + work.clip)
            loss = -torch.min(ratio * sign, clipped * sign).sum()
            (loss / (work.sequences * work.tokens)).backward()
        hidden.backward(leaf.grad)


def _chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    yield from zip(*(x.split(CHUNK) for x in tensors), strict=True)


class Optimizer:
    """AdamW over float32 copies of bfloat16 parameters, and over gradients summed in float32."""

    def __init__(self, model: nn.Module, work: Work) -> None:
        self.narrow: list[Tensor] = list(model.parameters())
        self.limit = work.max_grad_norm
        self.masters = [p.detach().float().requires_grad_() for p in self.narrow]
        for narrow, master in zip(self.narrow, self.masters, strict=True):
            master.grad = torch.zeros_like(master)
            narrow.register_post_accumulate_grad_hook(_into(master))
        self.adam = torch.optim.AdamW(
            self.masters, lr=work.learning_rate, weight_decay=0.0, fused=True
        )

    @torch.no_grad()
    def step(self) -> None:
        """Clip, step, and write the parameters."""
        nn.utils.clip_grad_norm_(self.masters, self.limit, foreach=True)
        self.adam.step()
        torch._foreach_copy_(self.narrow, self.masters)
        self.adam.zero_grad(set_to_none=False)


def _into(master: Tensor) -> Any:
    def add(narrow: Tensor) -> None:
        assert master.grad is not None
        assert narrow.grad is not None
        master.grad.add_(narrow.grad)
        narrow.grad = None

    return add
