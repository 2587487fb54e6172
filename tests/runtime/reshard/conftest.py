"""Processes that have joined over gloo, started once for all tests."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack

import pytest

from flowrl.runtime.ranks.ranks import open_store
from tests.runtime.reshard.carried import RANKS, join


@pytest.fixture(scope="session")
def on_ranks():
    """Return a function that has all ranks call a function; it returns what each returns."""
    store, spawn = open_store("127.0.0.1"), multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        crew = [
            stack.enter_context(
                ProcessPoolExecutor(1, spawn, join, (rank, f"127.0.0.1:{store.port}"))
            )
            for rank in range(RANKS)
        ]

        def on_ranks(function, *args):
            calls = [process.submit(function, rank, *args) for rank, process in enumerate(crew)]
            return [call.result(timeout=600) for call in calls]

        yield on_ranks
