"""Reward functions, called in worker processes under a time limit, and servers of rewards."""
