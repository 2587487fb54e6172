"""When a completion ends: stop tokens, and stop strings in its text."""

from collections.abc import Sequence
from itertools import takewhile
from operator import eq
from typing import Any

import torch
from torch import Tensor

from flowrl.runtime.engine import Sampling


class Stops:
    """What ends a completion.

    Args:
        sampling: its stop tokens, stop strings and the fewest tokens before either may end it.
        tokenizer: gives the end of sequence, and the text of tokens.
        device: where the tokens will be.
    """

    def __init__(
        self, sampling: Sampling, tokenizer: Any, device: torch.device | str = "cpu"
    ) -> None:
        ends = {tokenizer.eos_token_id} - {None} | set(sampling.stop_tokens)
        self.tokens = torch.tensor(sorted(ends), dtype=torch.int64, device=device)
        self.strings, self.min_tokens = sampling.stop, sampling.min_tokens
        self.tokenizer = tokenizer
        # A token spells a byte at least, so a string lies in as many tokens as it has bytes; one
        # more, because some decoders strip a space from the first.
        self.window = 1 + max((len(text.encode()) for text in self.strings), default=0)

    def forbid(self, logits: Tensor, count: int) -> Tensor:
        """Return logits, f[row, vocab], without stop tokens while `count` tokens are too few."""
        if count >= self.min_tokens:
            return logits
        return logits.index_fill(-1, self.tokens, -torch.inf)

    def reached(self, tail: Tensor, count: int) -> Tensor:
        """Return whether completions end with their newest token.

        Args:
            tail: i64[row, token], the newest tokens, `window` + 1 if there are as many.
            count: how many tokens each completion has.

        Returns:
            bool[row].
        """
        ended = torch.isin(tail[:, -1], self.tokens)
        if self.strings and count >= self.min_tokens:
            ended |= torch.tensor(self.spelled(tail.tolist()), device=tail.device)
        return ended

    def spelled(self, tails: Sequence[list[int]]) -> list[bool]:
        """Return whether the last token of each tail, as in `reached`, completes a stop string."""
        found = []
        for tail, text in zip(tails, self._texts(tails), strict=True):
            hits = [stop for stop in self.strings if stop in text]
            before = self._texts([tail[:-1]])[0] if hits else ""
            # Half a character reads otherwise than a whole one: what both spell was there before.
            old = sum(takewhile(bool, map(eq, before, text)))
            found.append(any(stop in text[max(0, old - len(stop) + 1) :] for stop in hits))
        return found

    def _texts(self, rows: Sequence[list[int]]) -> list[str]:
        """Return text with special tokens, so that these can be stop strings too."""
        texts: list[str] = self.tokenizer.batch_decode(
            rows, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return texts
