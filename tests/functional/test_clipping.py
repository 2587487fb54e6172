import pytest
import torch
from hypothesis import given

from flowrl.functional import clipping
from tests.functional.batches import batches

RATIOS = torch.tensor([1.5, 0.5, 1.5, 0.5])
ADVANTAGES = torch.tensor([1.0, -1.0, -1.0, 1.0])
EVERY = torch.ones(4, dtype=torch.bool)


def test_a_clip_is_active_above_for_good_tokens_and_below_for_bad_ones():
    new, old = RATIOS.log(), torch.zeros(4)

    both, low, high = clipping.clip_fractions(new, old, ADVANTAGES, EVERY, clip=0.2, clip_high=0.6)

    assert (both, low, high) == (0.25, 0.25, 0)
    assert clipping.clip_fraction(new, old, ADVANTAGES, EVERY) == 0.5


@given(batch=batches(least=1))
def test_the_two_shares_add_up_to_the_clip_fraction(batch):
    new, old, advantages = (batch.tokens[name] for name in "abc")

    both, low, high = clipping.clip_fractions(new, old, advantages, batch.mask, clip=0.1)

    assert both == clipping.clip_fraction(new, old, advantages, batch.mask, clip=0.1)
    assert low + high == pytest.approx(both)


def test_a_sequence_is_clipped_as_a_whole():
    new, lengths = torch.tensor([0.4, 0.0, -0.4, -0.4]), torch.tensor([2, 2])

    fractions = clipping.sequence_clip_fractions(
        new, torch.zeros(4), ADVANTAGES.abs(), EVERY, clip=0.1, clip_high=0.1, lengths=lengths
    )

    assert [x.item() for x in fractions] == [0.5, 0.0, 0.5]


@pytest.mark.parametrize(("clip", "share"), [(None, 0.0), (0.2, 0.5)])
def test_ratios_are_counted_beside_the_bounds_that_there_are(clip, share):
    fraction = clipping.ratio_clip_fraction(RATIOS.log(), torch.zeros(4), EVERY, clip=clip)

    assert fraction == share
