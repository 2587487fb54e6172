"""The tables of a run file, a class each: their keys, and what these mean."""
