"""A run file held against its program, before anything is loaded."""
