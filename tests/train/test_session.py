"""What a session accepts; `tests/runtime/test_eager.py` runs programs in one."""

import pytest
from inline_snapshot import snapshot

import flowrl as fl
from flowrl.runtime.engine import Sampling
from flowrl.runtime.schedule import TrainerOptions


def test_a_session_is_a_class():
    assert isinstance(fl.session, type)
    assert "session" in fl.__all__
    with pytest.raises(AttributeError, match="'flowrl' has no attribute 'sesion'"):
        fl.sesion  # noqa: B018


def test_options_are_the_fields_of_their_classes_or_a_mapping_of_them():
    sampling = {"max_tokens": 4, "stop": ("a",)}
    optimizer = {"learning_rate": 1, "betas": (0.9, 0.95)}

    with fl.session(sampling=sampling, optimizer=optimizer) as made:
        assert made.sampling == Sampling(max_tokens=4, stop=("a",))
        assert made.optimizer == TrainerOptions(learning_rate=1.0, betas=(0.9, 0.95))
    with fl.session(sampling=Sampling(top_k=3)) as made:
        assert made.sampling == Sampling(top_k=3)


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": {"max_toknes": 4}},
        {"sampling": {"max_tokens": "4"}},
        {"optimizer": {"learning_rate": -1.0}},
        {"optimizer": 1e-5},
    ],
)
def test_options_that_do_not_fit_are_refused(options):
    with pytest.raises(fl.FlowrlError) as refused:
        fl.session(**options)

    assert str(refused.value) in snapshot(
        [
            """\
unknown key `max_toknes` in [sampling] (did you mean `max_tokens`?)
  sampling={'max_toknes': 4}
help: the keys of [sampling] are temperature, top_p, top_k, max_tokens, min_tokens, stop, stop_tokens\
""",
            """\
`sampling.max_tokens` must be an integer; got "4"
  sampling={'max_tokens': '4'}\
""",
            """\
`optimizer.learning_rate` must be at least 0; got -1.0
  optimizer={'learning_rate': -1.0}\
""",
            """\
`optimizer` must be a table; got 1e-05
  optimizer=1e-05\
""",
        ]
    )
