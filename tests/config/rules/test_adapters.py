"""What a run file says of adapters, key against key."""

from inline_snapshot import snapshot

LORA = "[models.policy.lora]\nrank = 4\n"


def test_dropout_is_refused(error_of):
    assert error_of(LORA + "dropout = 0.1\n") == snapshot("""\
`models.policy.lora.dropout` must be 0; got 0.1
  run.toml:22
   22 | dropout = 0.1
        ^^^^^^^
help: with dropout a policy's ratio to itself would not be 1, and a gradient would depend on how rows are divided\
""")


def test_adapters_of_no_layer_are_refused(error_of):
    assert error_of(LORA + "targets = []\n") == snapshot("""\
`models.policy.lora.targets` names no layer
  run.toml:22
   22 | targets = []
        ^^^^^^^
help: "all-linear" takes all linear layers but heads\
""")
