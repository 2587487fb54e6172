import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from flowrl.functional.packing import pack, packed_attention
from flowrl.functional.ragged import Ragged

sequences_of = st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=5)


@given(sequences=sequences_of)
def test_labels_are_the_next_token_of_the_same_sequence(sequences):
    packed = pack(Ragged.of_rows(sequences, torch.int64), ignore_index=-1)

    assert packed.labels.tolist() == [x for ids in sequences if ids for x in [*ids[1:], -1]]
    assert packed.position_ids.tolist() == [x for ids in sequences for x in range(len(ids))]
    assert packed.cu_seqlens.diff().tolist() == [len(ids) for ids in sequences]
    assert packed.max_seqlen == max(map(len, sequences), default=0)


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_packed_attention_is_that_of_each_sequence_alone(lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    qkv = torch.randn((3, sum(lengths), 4), generator=generator, dtype=torch.float64)
    starts = torch.tensor([0, *lengths]).cumsum(0)

    out = packed_attention(*qkv, starts)

    alone = [
        torch.nn.functional.scaled_dot_product_attention(*part, is_causal=True)
        for part in qkv.split(lengths, dim=1)
    ]
    torch.testing.assert_close(out, torch.cat(alone))


def test_packed_attention_by_hand():
    """Two heads of one key; scores 1 and 2, capped 2 tanh(s / 2); the third token sees two."""
    q, k = torch.ones(2, 3, 1), torch.tensor([[[0.0], [1.0], [2.0]]])

    out = packed_attention(q, k, k, torch.tensor([0, 3]), scale=1.0, window=2, softcap=2.0)

    low, high = (math.exp(2 * math.tanh(score / 2)) for score in (1, 2))
    expected = torch.tensor([0, low / (1 + low), (low + 2 * high) / (low + high)])

    torch.testing.assert_close(out, expected.expand(2, 3)[..., None])
