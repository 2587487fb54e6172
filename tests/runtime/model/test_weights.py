from flowrl.runtime.model.models import ModelSpec, load_model
from flowrl.runtime.model.weights import weights_of


def test_tied_weights_stand_once(model_folder):
    names = weights_of(load_model(ModelSpec(model_folder("llama")))).keys()

    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names
