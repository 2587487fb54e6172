import pytest
from inline_snapshot import snapshot
from torch.testing import assert_close

from flowrl.errors import EngineError
from tests.runtime.engines.losses import losses, trainer_of


@pytest.fixture
def trainer(model_folder):
    return trainer_of(model_folder("llama"))


def test_one_rank_goes_on_bit_for_bit(trainer, model_folder, batch, tmp_path):
    loss, outputs = losses(batch)["token mean"]
    trainer.update(batch, outputs, 1.0, loss, step=0)
    trainer.save_sharded(str(tmp_path))
    other = trainer_of(model_folder("llama"), weight_decay=0.5)
    aliased = other.weights()

    other.load_sharded(str(tmp_path))

    assert_close(other.state_dict(), trainer.state_dict(), rtol=0, atol=0)
    for each in (trainer, other):
        each.update(batch, outputs, 1.0, loss, step=1)
    assert_close(aliased, trainer.weights(), rtol=0, atol=0)


def test_a_state_before_the_first_step_has_no_moments(trainer, batch, tmp_path):
    loss, outputs = losses(batch)["token mean"]
    before = trainer.state_dict()
    trainer.save_sharded(str(tmp_path))
    trainer.update(batch, outputs, 1.0, loss, step=0)

    trainer.load_sharded(str(tmp_path))

    assert_close(trainer.state_dict(), before, rtol=0, atol=0)


def test_a_folder_without_a_state_is_refused(trainer, tmp_path):
    with pytest.raises(EngineError) as error:
        trainer.load_sharded(str(tmp_path))

    assert str(error.value).replace(str(tmp_path), "FOLDER") == snapshot("""\
`FOLDER` holds no state in shards: [Errno 2] No such file or directory: 'FOLDER/.metadata'
help: give a folder that all ranks see and that `save_sharded` wrote to its end\
""")


@pytest.mark.parametrize("left", [None, 1000])
def test_a_folder_that_lost_a_part_is_refused_and_nothing_changes(left, trainer, batch, tmp_path):
    trainer.save_sharded(str(tmp_path))
    loss, outputs = losses(batch)["token mean"]
    trainer.update(batch, outputs, 1.0, loss, step=0)
    before = trainer.state_dict()
    part = tmp_path / "__0_0.distcp"
    size, kept = part.stat().st_size, part.read_bytes()[: left or 0]
    part.unlink() if left is None else part.write_bytes(kept)

    with pytest.raises(EngineError) as error:
        trainer.load_sharded(str(tmp_path))

    assert str(error.value) == (
        f"`{tmp_path}` has {left or 0} of {size} bytes of its file `__0_0.distcp`\n"
        "help: give a folder that all ranks see and that `save_sharded` wrote to its end"
    )
    assert_close(trainer.state_dict(), before, rtol=0, atol=0)


def test_a_state_of_another_model_is_refused_and_nothing_changes(trainer, model_folder, tmp_path):
    before = trainer.state_dict()
    trainer_of(model_folder("qwen2")).save_sharded(str(tmp_path))

    with pytest.raises(EngineError) as error:
        trainer.load_sharded(str(tmp_path))

    assert str(error.value) == snapshot("""\
LlamaForCausalLM has no tensor `lm_head.weight`
help: load weights of the same model\
""")
    assert_close(trainer.state_dict(), before, rtol=0, atol=0)


def test_a_folder_that_cannot_be_made_is_said(trainer, tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(EngineError) as error:
        trainer.save_sharded(str(tmp_path / "file" / "state"))

    assert str(error.value).replace(str(tmp_path), "FOLDER") == snapshot("""\
`FOLDER/file/state` can't be written: [Errno 20] Not a directory: 'FOLDER/file/state'
help: give a folder that all ranks see and that `save_sharded` wrote to its end\
""")
