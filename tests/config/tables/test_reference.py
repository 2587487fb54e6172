"""The reference in `docs/`."""

from inline_snapshot import external_file

from flowrl.config.tables.reference import reference
from flowrl.data.spec import DataSpec
from flowrl.rewards.server import ServerSpec
from flowrl.rewards.spec import RewardSpec


def test_the_reference_is_in_step_with_the_classes():
    """`pytest --inline-snapshot=fix` writes it anew."""
    classes = {"data": DataSpec, "reward.<function>": RewardSpec, "reward.<server>": ServerSpec}

    text = reference(classes)

    assert text == external_file("../../../docs/run_file.md", format=".txt")
