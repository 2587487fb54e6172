import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.errors import EngineError
from flowrl.runtime.training.schedule import SHAPES, TrainerOptions, learning_rate


def rates(count=8, **options):
    options = TrainerOptions(learning_rate=1.0, **options)
    return [round(learning_rate(options, step), 4) for step in range(count)]


def test_schedules_by_hand():
    shared = {"warmup_steps": 2, "total_steps": 6, "final_fraction": 0.2}

    assert rates(warmup_steps=4) == snapshot([0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert rates(schedule="linear", **shared) == snapshot([0.5, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2])
    assert rates(schedule="cosine", **shared) == snapshot(
        [0.5, 1.0, 1.0, 0.8828, 0.6, 0.3172, 0.2, 0.2]
    )
    assert rates(schedule="flat_then_linear", **shared) == snapshot(
        [0.5, 1.0, 1.0, 1.0, 1.0, 0.6, 0.2, 0.2]
    )
    assert rates(schedule="linear", start_step=3, warmup_steps=2, total_steps=7) == snapshot(
        [0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 0.5, 0.0]
    )


@given(
    schedule=st.sampled_from(sorted(SHAPES)),
    warmup=st.integers(0, 5),
    total=st.integers(1, 20),
    final=st.floats(0, 1),
    hold=st.floats(0, 0.99),
)
def test_a_rate_rises_through_the_warm_up_and_never_after(schedule, warmup, total, final, hold):
    options = TrainerOptions(
        learning_rate=2.0,
        schedule=schedule,
        warmup_steps=warmup,
        total_steps=total,
        final_fraction=final,
        hold_fraction=hold,
    )

    found = [learning_rate(options, step) for step in range(30)]

    assert found[:warmup] == sorted(found[:warmup])
    assert found[warmup:] == sorted(found[warmup:], reverse=True)
    assert max(found) == 2.0
    assert schedule == "constant" or found[-1] == pytest.approx(2.0 * final)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": -1.0}, "`learning_rate` must be at least 0; got -1.0"),
        ({"betas": (0.9, 1.0)}, "`betas` must be two numbers in [0, 1); got (0.9, 1.0)"),
        ({"max_grad_norm": 0.0}, "`max_grad_norm` must be above 0; inf is off; got 0.0"),
        ({"tokens_per_microbatch": 0}, "`tokens_per_microbatch` must be above 0; got 0"),
        ({"packing": "dense"}, "`packing` must be packed or padded; got 'dense'"),
        (
            {"schedule": "step"},
            "`schedule` must be one of constant, linear, cosine, flat_then_linear; got 'step'",
        ),
        (
            {"schedule": "linear"},
            "`total_steps` must be the number of steps for a linear schedule; got None",
        ),
    ],
)
def test_a_bad_option_is_named(options, message):
    with pytest.raises(EngineError) as error:
        TrainerOptions(**options)

    assert str(error.value) == message
