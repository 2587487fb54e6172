"""Pairs of shardings drawn at random."""

from hypothesis import strategies as st

from tests.compiler.layouts.models import machines, models, shardings


@st.composite
def cases(draw):
    """A model, two shardings of it on the same machines, and those machines."""
    shape = draw(models)
    return shape, draw(shardings(shape)), draw(shardings(shape)), draw(machines)


def near(send, cluster):
    """Whether a send stays on its node."""
    return cluster.node(send.source) == cluster.node(send.destination)
