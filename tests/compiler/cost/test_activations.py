"""Bytes of activations, counted for layers of known sizes."""

from flowrl.compiler.cost.activations import Widths
from flowrl.compiler.shapes import known_shape
from flowrl.ir.layout import Layout

LLAMA, MIXTRAL = known_shape("llama-3.1-8b"), known_shape("mixtral-8x7b")


def test_tensor_parallelism_divides_all_but_what_matrices_read():
    assert Widths.of(LLAMA, Layout()) == Widths(4096, 4096, 4096, 1024, 14336)
    assert Widths.of(LLAMA, Layout(tp=4)) == Widths(4096, 1024, 1024, 256, 3584)


def test_a_key_head_is_not_divided():
    assert Widths.of(LLAMA, Layout(tp=16)).k == Widths.of(LLAMA, Layout(tp=8)).k == 128


def test_of_a_mixture_the_experts_of_a_token_count():
    assert Widths.of(MIXTRAL, Layout()).f == 2 * 14336


def test_counts_by_hand():
    widths = Widths(h=100, n=50, q=40, k=10, f=200)

    assert widths.travelled(compiled=False) == 1400 + 4000 + 1300 + 3200
    assert widths.travelled(compiled=True) == 1400 + 800 + 600 + 2400
    assert widths.stored == 1000 + 200 + 1600
    assert widths.passing == 800 + 200 + 1200
