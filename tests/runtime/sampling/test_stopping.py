import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers.convert_slow_tokenizer import bytes_to_unicode

from flowrl.runtime.engine import Sampling
from flowrl.runtime.sampling.stopping import Stops


def byte_tokenizer():
    """Return a tokenizer of one token a byte: letters of other scripts take several."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made)


BYTES = byte_tokenizer()


def first_end(stops, ids):
    """Return how many tokens a completion has when it ends, seeing each prefix's tail."""
    for count in range(1, len(ids) + 1):
        tail = ids[max(0, count - 1 - stops.window) : count]
        if stops.reached(torch.tensor([tail]), count).item():
            return count
    return None


@given(
    text=st.text("ab é🙂\n", max_size=12),
    stop=st.lists(st.text("ab é🙂\n", min_size=1, max_size=3), min_size=1, max_size=2),
)
def test_a_stop_string_is_found_at_the_byte_that_completes_it(text, stop):
    ids = BYTES.encode(text)

    found = first_end(Stops(Sampling(stop=tuple(stop)), BYTES), ids)

    ends = [len(text[: text.index(s) + len(s)].encode()) for s in stop if s in text]
    assert found == min(ends, default=None)


def test_a_stop_string_before_min_tokens_does_not_end_later():
    ids = BYTES.encode("a.bcd.e")

    found = first_end(Stops(Sampling(stop=(".",), min_tokens=3), BYTES), ids)

    assert found == 6


def test_a_string_that_comes_again_ends_at_its_second_place():
    ids = BYTES.encode("abab")

    assert first_end(Stops(Sampling(stop=("ab",), min_tokens=3), BYTES), ids) == 4


def merging_tokenizer():
    """Return a tokenizer whose tokens are several bytes: part of a character, or of a few."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(initial_alphabet=alphabet, vocab_size=290, show_progress=False)
    made.train_from_iterator(["ab é🙂\nba éb🙂🙀a\n", "é🙂ab\n\nab éè", "🙂é b🙀"], trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made)


MERGING = merging_tokenizer()
BYTE_OF = {letter: byte for byte, letter in bytes_to_unicode().items()}
SPELLED = [
    bytes(BYTE_OF[letter] for letter in MERGING.convert_ids_to_tokens(i))
    for i in range(MERGING.vocab_size)
]
DRAWN = [i for i, spelled in enumerate(SPELLED) if set(spelled) <= set("ab é🙂🙀\n".encode())]


@given(
    ids=st.lists(st.sampled_from(DRAWN), max_size=12),
    stop=st.lists(st.text("ab é🙂🙀\n", min_size=1, max_size=3), min_size=1, max_size=2),
    least=st.integers(0, 4),
)
def test_a_stop_string_is_found_at_the_token_that_completes_it(ids, stop, least):
    found = first_end(Stops(Sampling(stop=tuple(stop), min_tokens=least), MERGING), ids)

    ends, text = [], b""
    for count, token in enumerate(ids, start=1):
        old, text = len(text), text + SPELLED[token]
        starts = (max(0, old - len(s.encode()) + 1) for s in stop)
        fresh = any(s.encode() in text[i:] for s, i in zip(stop, starts, strict=True))
        ends += [count] if fresh and count >= least else []
    assert found == min(ends, default=None)


def test_a_string_that_overlaps_an_earlier_one_ends_too():
    ids = BYTES.encode("aaa")

    assert first_end(Stops(Sampling(stop=("aa",), min_tokens=3), BYTES), ids) == 3
