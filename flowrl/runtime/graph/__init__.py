"""Evaluate graphs: ops in order, control flow, losses, in one process."""
