import json

from matplotlib import image

from examples.demo.curve import Curve, plot

ROWS = [
    {"step": 0, "eval/reward": 0.3, "eval/greedy": 0.5},
    {"step": 1, "reward": 0.25, "seconds": 1.5},
    {"step": 2, "reward": 0.75, "seconds": 1.5, "eval/reward": 0.8, "eval/greedy": 0.9},
]


def metrics(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return path


def test_a_curve_takes_training_and_held_out_rewards_from_their_own_rows(tmp_path):
    curve = Curve.read(metrics(tmp_path))

    assert curve == Curve(
        steps=[1, 2],
        trained=[0.25, 0.75],
        evaluated=[0, 2],
        sampled=[0.3, 0.8],
        greedy=[0.5, 0.9],
    )


def test_the_plot_is_a_picture_of_more_than_one_colour(tmp_path):
    path = tmp_path / "curve.png"

    plot(Curve.read(metrics(tmp_path)), path, title="GRPO")

    assert image.imread(path).std() > 0
