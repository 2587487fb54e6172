"""Runs of a run file: the loop, evaluation, checkpoints and logs."""
