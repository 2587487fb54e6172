"""Pools of workers: the controller, its lines to them, what each does, and Ray."""
