"""Ranks in processes of a test's own."""

import os

from torch import multiprocessing

from flowrl.runtime.ranks.ranks import leave


def as_ranks(count, function, *args):
    """Call a function of a rank's number and of arguments, once in each of some processes."""
    multiprocessing.spawn(_as_rank, (function, args), nprocs=count)


def _as_rank(index, function, args):
    """Be one of the processes, which ends before Python does.

    A thread of gloo that still holds a tensor by then aborts it (pytorch issue 190489).
    """
    function(index, *args)
    leave()
    os._exit(0)
