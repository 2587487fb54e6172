"""What becomes of weights while others work, held against the program."""

import pytest
from inline_snapshot import snapshot

from flowrl.config.check import cluster_of, trace_run
from flowrl.config.residency import check_residencies
from flowrl.errors import RunFileError

POOL = """
[cluster.pools.main]
roles = ["policy", "reference"]
residencies = {residencies}
"""


def checked(run):
    check_residencies(run, trace_run(run).graph, cluster_of(run))


@pytest.mark.parametrize(
    "residencies",
    ['{ policy = "drop", "policy.train" = "offload", reference = "offload" }', "{}"],
)
def test_weights_that_are_let_go_and_trained_in_another_seat_come_again(residencies, load):
    checked(load(POOL.replace("{residencies}", residencies)))


def test_weights_that_nothing_brings_again_are_not_let_go(load):
    with pytest.raises(RunFileError) as error:
        checked(load(POOL.replace("{residencies}", '{ reference = "drop" }')))

    assert str(error.value) == snapshot("""\
`reference.score` has the residency `drop`, but no other seat trains its weights to bring them anew
  run.toml:23
   23 | residencies = { reference = "drop" }
                        ^^^^^^^^^
help: let it be `resident`, or go to host memory with `offload`\
""")
