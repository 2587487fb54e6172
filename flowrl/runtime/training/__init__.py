"""What a trainer does with a model: microbatches, master weights, its schedule."""
