"""Seconds of generation: prompts at once, then token by token."""

from collections.abc import Iterator

import attrs

from flowrl.compiler.cost.activations import AdapterWidths, Widths
from flowrl.compiler.cost.cache import at_once, sharing, token_bytes
from flowrl.compiler.cost.rank import BF16, Rank
from flowrl.compiler.cost.spent import Spent
from flowrl.compiler.target import Workload
from flowrl.compiler.target.lengths import Lengths, share_any

TAIL = 0.1
"""The share of an engine's sequences whose decoding, after all others ended, is its tail."""


@attrs.frozen
class Steps:
    """Decode steps of an engine that are alike.

    Attributes:
        count: how many; an expected number.
        running: sequences in each.
        tokens: that each of these has behind it, its prompt included.
        last: whether they belong to the tail.
    """

    count: float
    running: float
    tokens: float
    last: bool = False


def decode_steps(
    workload: Workload, sequences: float, running: float, everywhere: float
) -> Iterator[Steps]:
    """Yield the decode steps of the engine that ends last.

    While sequences wait, each that ends makes room for another. The last that run then end by the
    survival function of the lengths; a step happens if any sequence of the pool is that long.

    Args:
        workload: gives the lengths.
        sequences: of one engine.
        running: how many of them it runs at once.
        everywhere: in all engines of the pool: the longest of them decides.
    """
    prompt, lengths = workload.prompt_tokens.mean, workload.response_tokens
    if sequences > running and lengths.mean:
        turns = (sequences - running) * lengths.mean / running
        yield Steps(turns, running, prompt + lengths.mean_square / (2 * lengths.mean))
    for start, end, longer in lengths.survival():
        count = (end - start) * share_any(longer, everywhere)
        behind = prompt + (start + end) / 2
        yield Steps(count, max(running * longer, 1.0), behind, longer <= TAIL)


def generate_seconds(sequences: float, rank: Rank) -> Spent:
    """Return the seconds of one generation on the engine that ends last.

    Decoding reads all weights and each sequence's cache in every step, and is bound by that unless
    the batch is large (Pope et al. 2022, arXiv:2211.05102, sec. 2); prompts are bound by compute.
    """
    if not sequences:
        return Spent()
    each = max(sequences / rank.batches, 1.0)
    return engine_seconds(sequences, rank, each, rank.workload.response_tokens, max(sequences, 1.0))


def engine_seconds(
    sequences: float, rank: Rank, each: float, lengths: Lengths, everywhere: float
) -> Spent:
    """Return the seconds of one generation on one engine.

    Args:
        sequences: of the task.
        rank: of the engine.
        each: sequences of this engine.
        lengths: of its responses; if they are known, a histogram, and `everywhere` is infinite.
        everywhere: sequences among which the longest decides how long the engine decodes.
    """
    running = min(at_once(rank, sequences), each)
    workload = attrs.evolve(rank.workload, response_tokens=lengths)
    spent = Spent(overhead=rank.speeds.start)
    spent += _prompts(each / sharing(workload, sequences), rank)
    for steps in decode_steps(workload, each, running, everywhere):
        took = _decode_step(rank, steps.running, steps.tokens) * steps.count
        spent += Spent(tail=took.seconds) if steps.last else took
    return spent


def _prompts(prompts: float, rank: Rank) -> Spent:
    """Return the seconds to fill the caches of different prompts."""
    shape, layout, lengths = rank.shape, rank.layout, rank.workload.prompt_tokens
    tokens, pairs = prompts * lengths.mean, prompts * lengths.mean_square / 2
    flops = tokens * (shape.body_flops + rank.adapter_flops) + pairs * shape.attention_flops
    flops += prompts * shape.head_flops
    travelled = Widths.of(shape, layout).travelled(compiled=True)
    travelled += AdapterWidths.of(rank.adapter).travelled(compiled=True)
    moved = tokens * rank.layers * travelled
    return Spent(
        compute=flops / (layout.tp * layout.pp) / rank.flops,
        memory=moved / rank.hbm,
        network=rank.layers * rank.layer_exchange(tokens),
    )


def _decode_step(rank: Rank, running: float, tokens: float) -> Spent:
    """Return the seconds to give each running sequence its next token.

    With pipeline stages the sequences are cut into as many parts, each on one stage: a step of all
    takes every part through every stage, so the weights of all stages are read one after another.
    The scheduler prepares the next step meanwhile: what it takes longer is overhead.
    """
    shape, layout = rank.shape, rank.layout
    part = running / min(layout.pp, running)
    flops = part * (shape.flops_per_token(tokens) + rank.adapter_flops) / layout.tp
    weights = rank.weights_read(part) * layout.pp
    cache = part * tokens * token_bytes(rank) * layout.pp
    sends = layout.pp * rank.along("pp").send(part * shape.hidden * BF16)
    device = Spent(
        compute=max(flops / rank.flops, weights / rank.hbm),
        memory=cache / rank.hbm,
        network=shape.layers * rank.layer_exchange(part) + sends,
    )
    host = rank.speeds.step + rank.speeds.sequence * running
    return device + Spent(overhead=max(0.0, host - device.seconds))
