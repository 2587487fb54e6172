import pytest

from flowrl.rewards.spec import RewardSpec


def test_one_function_is_picked_by_no_value():
    assert RewardSpec("rewards.py:f").functions == {"": "rewards.py:f"}
    assert RewardSpec({"math": "rewards.py:f"}).functions == {"math": "rewards.py:f"}


@pytest.mark.parametrize("fields", [{"time_limit": 0.0}, {"batch": 0}])
def test_limits_must_be_positive(fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        RewardSpec("rewards.py:f", **fields)


@pytest.mark.parametrize("function", ["", {}])
def test_a_function_must_be_named(function):
    with pytest.raises(ValueError, match="must name a function"):
        RewardSpec(function)


@pytest.mark.parametrize("function", ["http://host/score", {"math": "https://host/score"}])
def test_a_function_is_no_address(function):
    with pytest.raises(ValueError, match=r"`function` can't be an address, as `http` can: `http"):
        RewardSpec(function)
