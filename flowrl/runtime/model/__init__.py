"""Transformers models: loaded, run forward, attended, divided over ranks."""
