"""The ranges of keys."""

from inline_snapshot import snapshot


def test_values_out_of_range(error_of):
    added = """\
[engines.policy.generate]
top_p = 1.5
top_k = -1
temperature = -0.1
[optimizer]
betas = [0.9, 1.0]
"""

    assert error_of(added, "train.steps=0") == snapshot("""\
`train.steps` must be an integer of at least 1; got 0
  --set train.steps=0
also: `engines.policy.generate.top_p` must be a number above 0 and up to 1; got 1.5
  run.toml:21
   21 | top_p = 1.5
        ^^^^^
also: `engines.policy.generate.top_k` must be an integer of at least 0; got -1
  run.toml:22
   22 | top_k = -1
        ^^^^^
also: `engines.policy.generate.temperature` must be a number of at least 0; got -0.1
  run.toml:23
   23 | temperature = -0.1
        ^^^^^^^^^^^
also: `optimizer.betas[1]` must be a number from 0 to below 1; got 1.0
  run.toml:25
   25 | betas = [0.9, 1.0]
        ^^^^^\
""")
