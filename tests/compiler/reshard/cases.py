"""Pairs of placements drawn at random."""

from hypothesis import strategies as st

from tests.compiler.layouts.models import machines, models, placements


@st.composite
def cases(draw):
    """A model, two placements of it on the same machines, and those machines."""
    shape = draw(models)
    return shape, draw(placements(shape)), draw(placements(shape)), draw(machines)


def near(send, cluster):
    """Whether a send stays on its node."""
    return cluster.node(send.source) == cluster.node(send.destination)
