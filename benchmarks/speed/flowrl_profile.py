"""Which functions of Python flowrl's steps spend their time in, on this workload.

    python flowrl_profile.py WORK.json PROFILE.txt [WARM-UP]

The steps are those of the run, without its logs; the first ones, WARM-UP, are left out.
"""

import cProfile
import pstats
import shutil
import sys
from pathlib import Path

from work import Work

from flowrl.config.run_file import load_run_file
from flowrl.train.executors import opened
from flowrl.train.prepare import lower

SHOWN = 40


def profiled(work: Work, warmup: int) -> cProfile.Profile:
    """Run the steps; return the profile of those after the first ones."""
    shutil.rmtree(work.folder, ignore_errors=True)
    run, profile = load_run_file(work.run_file, work.sets), cProfile.Profile()
    with opened(run, lower(run), print) as ready:
        carry = ready.executor.first()
        for number in range(work.steps):
            if number == warmup:
                profile.enable()
            carry = ready.executor.step(carry, ready.cursors, number).carry
        profile.disable()
    return profile


def main(work: Work, file: str, warmup: int = 2) -> None:
    """Write the most expensive functions, by their own seconds and with what they call."""
    profile = profiled(work, warmup)
    with Path(file).open("w") as out:
        for order in ("tottime", "cumulative"):
            pstats.Stats(profile, stream=out).sort_stats(order).print_stats(SHOWN)


if __name__ == "__main__":
    main(Work.load(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
