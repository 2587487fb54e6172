"""The models of a run file that adapters are trained on."""

from tests.config.conftest import pools_of

LORA = "[models.policy.lora]\nrank = 4\n"


def test_a_model_of_the_same_folder_is_the_base(load):
    assert pools_of(load()).bases == {}
    assert pools_of(load(LORA)).bases == {"reference": ["policy"]}
    assert pools_of(load(LORA, 'models.policy.path="./model"')).bases == {"reference": ["policy"]}
    assert pools_of(load(LORA, 'models.reference.path="other"')).bases == {}
    assert pools_of(load(LORA, 'models.reference.dtype="bfloat16"')).bases == {}


def test_an_adapter_has_no_layout_beside_models_that_have(load):
    pools = '[cluster]\nexecutor = "ray"\n[cluster.pools.all]\nworkers = 2\nroles = ["policy"]\n'
    other = '[cluster.pools.rest]\nworkers = 2\nroles = ["reference"]\n'
    shard = (
        '[engines.policy.train]\nshard = "fsdp2"\n[cluster.pools.rest.layouts]\nreference = "dp2"\n'
    )

    cluster = pools_of(load(LORA + pools + other + shard))

    assert cluster.layout_of("policy", "train") == ""
    assert cluster.layout_of("reference", "train") == "dp2"
    assert cluster.bases == {"reference": ["policy"]}
