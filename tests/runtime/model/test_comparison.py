"""What samples compared with what trains."""

import attrs
import pytest
import torch
from inline_snapshot import snapshot

from flowrl.errors import EngineError
from flowrl.runtime.model.comparison import Comparison


@attrs.define(eq=False)
class Engine:
    """Weights in float32, of which others in bfloat16 are computed with."""

    master: dict
    narrow: dict = attrs.field(init=False)

    def __attrs_post_init__(self):
        self.narrow = {name: x.bfloat16() for name, x in self.master.items()}

    def weights(self):
        return self.master

    def computed(self):
        return self.narrow


@attrs.define(eq=False)
class Generator:
    """Tensors that it computes with."""

    own: dict
    cache_version: int = 0
    scales: dict = attrs.field(factory=dict)

    def held(self):
        return self.own


@pytest.fixture
def engine():
    draw = torch.Generator().manual_seed(0)
    sizes = {"embed.weight": (7, 4), "norm.weight": (4,), "down.weight": (4, 9)}
    return Engine({name: torch.randn(size, generator=draw) for name, size in sizes.items()})


def copy_of(engine):
    return Generator({name: x.clone() for name, x in engine.narrow.items()})


def test_equal_weights_are_counted_and_so_are_those_that_are_shared(engine):
    shared = Generator(engine.narrow | {"norm.weight": engine.narrow["norm.weight"].clone()})

    comparison = Comparison(1)
    assert comparison.due(shared, "first")

    assert comparison.figures("policy", shared, engine, shared=False) == snapshot(
        {"policy/weights_compared": 3, "policy/weights_shared": 2, "policy/cache_version": 0}
    )


@pytest.mark.parametrize("place", [(0, 0), (3, 8)])
def test_one_altered_number_is_found_and_its_tensor_named(engine, place):
    generator, comparison = copy_of(engine), Comparison(1)
    generator.own["down.weight"][place] += 0.01
    comparison.due(generator, "first")

    with pytest.raises(EngineError) as error:
        comparison.figures("policy", generator, engine, shared=False)

    assert str(error.value) == snapshot("""\
`policy` is not sampled from with the weights that train: `down.weight` differs in 1 of 36 elements
help: start again from a checkpoint; nothing but its trainer may write an engine's weights\
""")


def test_what_is_held_scaled_is_compared_as_rounded_and_then_scaled(engine):
    generator, comparison = copy_of(engine), Comparison(1)
    generator.own["down.weight"] *= 0.7
    generator.scales["down.weight"] = 0.7
    comparison.due(generator, "first")
    assert comparison.figures("policy", generator, engine, shared=False)["policy/weights_compared"]

    generator.own["down.weight"] = (engine.master["down.weight"] * 0.7).bfloat16()

    with pytest.raises(EngineError, match=r"`down.weight` differs in \d+ of 36 elements"):
        comparison.figures("policy", generator, engine, shared=False)


def test_a_generator_that_caches_nothing_has_no_version_of_it(engine):
    generator, comparison = copy_of(engine), Comparison(1)
    generator.cache_version = None

    for version in ("first", "second"):
        comparison.due(generator, version)
        found = comparison.figures("policy", generator, engine, shared=False)

        assert found == {"policy/weights_compared": 3, "policy/weights_shared": 0}


def test_all_that_differ_are_counted(engine):
    generator, comparison = copy_of(engine), Comparison(1)
    generator.own = {name: -x for name, x in generator.own.items()}
    comparison.due(generator, "first")

    with pytest.raises(EngineError, match=r"`embed.weight` differs in 28 of 28 elements, as do 2"):
        comparison.figures("policy", generator, engine, shared=False)


def test_a_tensor_that_is_no_longer_shared_is_named(engine):
    generator, comparison = Generator(dict(engine.narrow)), Comparison(1)
    comparison.due(generator, "first")
    comparison.figures("policy", generator, engine, shared=True)
    generator.own["norm.weight"], generator.cache_version = generator.own["norm.weight"].clone(), 1
    comparison.due(generator, "second")

    with pytest.raises(EngineError) as error:
        comparison.figures("policy", generator, engine, shared=True)

    assert str(error.value) == snapshot("""\
`policy`: the generator no longer shares the trainer's tensor `norm.weight`
help: leave out whatever replaces an engine's tensors during a run\
""")


def test_a_cache_that_outlives_its_weights_is_found(engine):
    generator, comparison = copy_of(engine), Comparison(1)
    comparison.due(generator, "first")
    comparison.figures("policy", generator, engine, shared=False)
    comparison.due(generator, "second")

    with pytest.raises(EngineError) as error:
        comparison.figures("policy", generator, engine, shared=False)

    assert str(error.value) == snapshot("""\
the generator of `policy` got other weights, but its cache still has version 0: what it cached under the old ones can be hit
help: an engine must drop its cache, or change its key, when weights arrive\
""")


@pytest.mark.parametrize(
    ("every", "expected"), [(0, []), (1, list("abcdefg")), (3, ["a", "d", "g"])]
)
def test_the_first_version_and_every_so_many_are_due_once(engine, every, expected):
    generator, comparison = copy_of(engine), Comparison(every)

    due = [version for version in "aabcccdefgg" if comparison.due(generator, version)]

    assert due == expected


def test_a_generator_that_shows_no_weights_is_left_out(engine):
    assert not Comparison(1).due(object(), "first")
