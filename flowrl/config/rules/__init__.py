"""Keys of a run file held against each other, before its program is known."""
