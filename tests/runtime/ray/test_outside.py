"""A program outside the repository, on Ray."""

import pytest

from flowrl.train.run import run_file
from tests.runtime.ray.conftest import POOLS, known
from tests.test_outside import outside  # noqa: F401
from tests.train.conftest import records

pytestmark = pytest.mark.usefixtures("kept")


def test_its_run_on_ray_is_its_run_in_one_process(outside):  # noqa: F811
    path = outside / "rival.toml"
    path.write_text(path.read_text() + POOLS)

    found = [
        records(run_file(str(path), (f"train.folder={name}", f"cluster.executor={name}")).parent)
        for name in ("ray", "local")
    ]

    there, here = [[known(record) for record in of] for of in found]
    assert there == here
