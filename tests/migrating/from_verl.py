"""A reward of verl, called for flowrl."""

from gsm8k import compute_score  # verl's `custom_reward_function`, as it stands


def score(completions, data_source, reward_model, extra_info):
    """Return a score for each completion; `reward_model` and `extra_info` are columns of the rows."""
    rows = zip(data_source, completions, reward_model, extra_info, strict=True)
    scores = [
        compute_score(source, text, model["ground_truth"], extra)
        for source, text, model, extra in rows
    ]
    return [found["score"] if isinstance(found, dict) else found for found in scores]
