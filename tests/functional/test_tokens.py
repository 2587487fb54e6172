import torch
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.functional.logprobs import response_logprobs, token_logprobs
from flowrl.functional.progress import resume_position
from flowrl.functional.tokens import Turn, assemble_multiturn, loss_mask
from tests.functional.batches import refusal

rows_of = st.lists(
    st.tuples(
        st.lists(st.integers(0, 3), min_size=4, max_size=4), st.integers(0, 4), st.booleans()
    ),
    min_size=1,
)


@given(rows=rows_of, mask_truncated=st.booleans())
def test_a_row_is_trained_up_to_and_with_its_first_end(rows, mask_truncated):
    tokens, counts, limit = (torch.tensor(column) for column in zip(*rows, strict=True))

    mask, truncated, lengths = loss_mask(
        tokens, counts, limit, eos_ids=[2, 3], mask_truncated=mask_truncated
    )

    for row, (ids, count, hit) in enumerate(rows):
        ends = [place + 1 for place in range(count) if ids[place] >= 2]
        want = min(ends, default=count)
        cut = hit and not ends
        assert lengths[row] == want
        assert truncated[row] == cut
        shown = 0 if cut and mask_truncated else want
        assert mask[row].tolist() == [place < shown for place in range(4)]


def test_an_assistant_turn_with_too_few_log_probabilities_is_named():
    turns = [Turn("tool", [1]), Turn("assistant", [1, 2], [-0.5])]

    assert refusal(assemble_multiturn, [0], turns) == snapshot(
        "turn 1 must have one log-probability a token; got 2 ids and 1 logprobs"
    )


def test_a_token_is_scored_by_the_logits_before_it():
    logits = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[5, 1, 3, 2]])

    scored = response_logprobs(logits, ids, torch.tensor([2]), torch.tensor([2]), temperature=0.5)

    want = token_logprobs(logits[:, 1:3], ids[:, 2:], temperature=0.5)
    assert torch.equal(scored, want)


def test_a_response_that_starts_where_nothing_was_read_is_refused():
    one = torch.tensor([0]), torch.tensor([1])

    message = refusal(response_logprobs, torch.zeros(1, 3, 2), torch.zeros(1, 3).long(), *one)

    assert message == snapshot(
        "responses must lie in positions 1 to 2; got start=tensor([0]) counts=tensor([1])"
    )


def test_resuming_after_the_last_step_is_refused():
    message = refusal(resume_position, 7, steps_per_epoch=3, total_epochs=2)

    assert message == snapshot("global_step must be in [0, 6]; got 7")
