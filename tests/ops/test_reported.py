"""Means of rewards are metrics by themselves."""

from tests.ir.source import STEP, traced


def metrics(*lines):
    graph = traced(STEP + "\n".join(f"    {line}" for line in lines))
    return [name.removeprefix("metrics.") for name, _ in graph.outputs]


def test_a_reward_is_reported_under_its_name():
    assert metrics("return {'length': rollouts.mask.float().sum(mask=rollouts.mask)}") == [
        "length",
        "reward",
    ]


def test_a_second_scoring_by_a_name_is_numbered_as_axes_are():
    again = "again, other = ops.score('reward', ops.generate(policy, prompts))"

    assert metrics(again, "return {}") == ["reward", "reward'2"]


def test_a_mean_that_the_program_returns_is_not_reported_again():
    again = "again, other = ops.score('reward', ops.generate(policy, prompts))"

    assert metrics(again, "return {'greedy': other.mean()}") == ["greedy", "reward"]


def test_rewards_that_sample_until_draws_are_reported_over_the_batch():
    assert metrics(
        "draw = lambda p: ops.score('correct', ops.generate(policy, p, n=2))",
        "keep = lambda drawn: ops.has_signal(drawn[1])",
        "ops.sample_until(draw, keep, prompts, groups=2, rounds=3)",
        "return {}",
    ) == ["reward", "correct"]
