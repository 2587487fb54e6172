"""The distribution that a completion is sampled from, and how a token is drawn from it."""

import math

import numpy as np
import torch
from torch import Tensor

from flowrl.runtime.engine import Sampling


def uniforms(seed: int, count: int) -> np.ndarray:
    """Return f64[count] in [0, 1): one number for each token of the sample of that seed.

    Philox takes all 64 bits of a seed, and neighbouring seeds are independent by construction
    (Salmon et al. 2011, SC'11); torch's CPU generator keeps 32 bits of a seed.
    """
    return np.random.Generator(np.random.Philox(key=seed % 2**64)).random(count)


def sample(logits: Tensor, sampling: Sampling, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one token a row by the inverse of its distribution function.

    Args:
        logits: f[row, vocab], as the model gives them; -inf forbids a token.
        sampling: temperature and filters. Temperature 0 takes the likeliest token, the first
            of equals; that distribution is a point mass, so the logprob is 0.
        uniform: f64[row], in [0, 1).

    Returns:
        i64[row], token ids, and f[row], their natural logprobs under the tempered, filtered,
        renormalised distribution; NaN where the logits are.
    """
    if sampling.temperature == 0:
        highest = logits.max(-1)
        return highest.indices, highest.values - highest.values
    log_p = log_distribution(logits, sampling)
    below = log_p.double().exp().cumsum(-1)
    total = below[:, -1:].contiguous()
    drawn = torch.searchsorted(below, uniform[:, None] * total, right=True)
    last = torch.searchsorted(below, total)  # the last possible token: a product may round up
    tokens = torch.minimum(drawn, last).clamp(max=logits.shape[-1] - 1)
    return tokens[:, 0], log_p.gather(-1, tokens)[:, 0]


def log_distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return f[row, vocab], natural logs of the probabilities after temperature, top-k and top-p.

    Filters apply in that order, each to what the one before left; what they drop is -inf.
    """
    logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        smallest = logits.topk(sampling.top_k, -1).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, -math.inf)
    if sampling.top_p < 1:
        logits = logits.masked_fill(outside_nucleus(logits, sampling.top_p), -math.inf)
    return torch.log_softmax(logits, -1)


def outside_nucleus(logits: Tensor, top_p: float) -> Tensor:
    """Return bool[row, vocab], True outside the fewest likeliest tokens that reach `top_p`.

    Source: Holtzman et al. 2020, arXiv:1904.09751, sec. 3.1.
    """
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    return torch.zeros_like(order, dtype=torch.bool).scatter(-1, order, before >= top_p)
