"""What ranks have of a model for vLLM is what the planner sends them."""

import pytest
import torch
import transformers
from inline_snapshot import snapshot

from flowrl.compiler.layouts import Sharding, Storage
from flowrl.compiler.shapes import ModelShape
from flowrl.errors import EngineError
from flowrl.ir.layout import Layout
from flowrl.runtime.engines.vllm.shards import shards_of
from flowrl.runtime.ranks.ranks import Ranks
from flowrl.train.moves import Stored
from tests.runtime.families import FAMILIES, SIZES, model_of


def bare(config):
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"granite"}))
def test_a_rank_has_what_is_sent_to_it_and_spreads_it_in_its_place(family, ranks):
    config = FAMILIES[family]()
    config.vocab_size = 150  # 192 when padded
    shape = ModelShape.from_config(config.to_dict())
    sharding = Sharding(Layout.parse(f"tp{ranks}"), range(ranks), Storage.LOADER)
    whole = model_of(config).state_dict()

    for rank in range(ranks):
        shards, sent = shards_of(bare(config), Ranks(rank, ranks)), sharding.tensors(rank, shape)

        assert {n: s.shape for n, s in shards.items() if 0 not in s.shape} == (
            Stored.of(sharding, shape, rank).shapes
        )
        for each in sent:
            own, expected = (
                torch.empty(each.shape),
                torch.full_like(whole[each.tensor], torch.nan),
            )
            for piece in each.pieces:
                here, there = (tuple(slice(*s) for s in box) for box in (piece.stored, piece.box))
                own[here] = expected[there] = whole[each.tensor][there]
            spread = shards[each.tensor].spread(own)
            torch.testing.assert_close(spread, expected, rtol=0, atol=0, equal_nan=True)


def test_models_that_do_not_divide_are_refused():
    found = []
    for config, ranks in (
        (FAMILIES["llama"](), 3),
        (transformers.GPT2Config(**SIZES | {"n_inner": 24}), 2),
    ):
        with pytest.raises(EngineError) as error:
            shards_of(bare(config), Ranks(0, ranks))
        found.append(str(error.value))

    assert found == snapshot(
        [
            """\
the model doesn't fit: `tp` 3 doesn't divide the 4 heads of `model.layers.0.self_attn.q_proj.weight`
help: divide by fewer, and fill the pool with `dp`\
""",
            """\
transformers declares no `base_model_tp_plan` for models of type `gpt2`, by which several ranks could divide this one
help: sample with whole weights: a layout `dpN` of the generator\
""",
        ]
    )
