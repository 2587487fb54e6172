"""Where a program lives: pools, layouts, memory, ways of weights; what the planner is told."""
