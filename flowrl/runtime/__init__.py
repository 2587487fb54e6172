"""Run a graph: the reference interpreter, and what it needs of engines, rewards and data."""
