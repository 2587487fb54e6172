"""Workers that act as one: their groups, what they agree on, the edges between them."""
