"""Profiles are found by GPU and kind, written, read, and fitted to what was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.compiler.cost.seconds import seconds
from flowrl.compiler.shapes import known_shape
from flowrl.compiler.target import Profile, Speeds
from flowrl.compiler.target.profile import DEFAULT
from flowrl.errors import DataError
from flowrl.ir.layout import Layout
from tests.compiler.cost.targets import target, task

positive = st.floats(1e-6, 10)
speeds = st.builds(Speeds, positive, positive, positive, positive, positive, positive)
profiles = st.builds(
    lambda own: Profile({**DEFAULT, **own}),
    st.dictionaries(st.tuples(st.sampled_from(["H200", "*"]), st.sampled_from("abc")), speeds),
)


def test_the_nearest_speeds_count():
    own, kind, gpu, rest = (Speeds(flops=share) for share in (0.1, 0.2, 0.3, 0.4))
    profile = Profile(
        {("H200", "update"): own, ("*", "update"): kind, ("H200", "*"): gpu, ("*", "*"): rest}
    )

    assert profile.of("H200", "update") == own
    assert profile.of("A10", "update") == kind
    assert profile.of("H200", "values") == gpu
    assert profile.of("A10", "values") == rest


@given(profiles)
def test_a_profile_reads_back_as_written(profile):
    assert Profile.from_json(profile.to_json()) == profile


def test_a_profile_is_kept_in_a_file(tmp_path):
    profile = Profile().fitted({("H200", "update"): 1.0}, {("H200", "update"): 2.0})
    profile.save(tmp_path / "profile.json")

    assert Profile.load(tmp_path / "profile.json") == profile


@given(st.sampled_from(["generate", "logprobs", "update", "ema"]), st.floats(0.1, 10))
def test_a_fitted_profile_predicts_what_was_measured(kind, ratio):
    shape, key = known_shape("smollm2-135m"), ("H200", kind)

    def predicted(profile):
        machine = target("1xH200", profile=profile)
        return seconds(task(kind, 512), shape, Layout(), range(1), machine).seconds

    before = predicted(Profile())
    fitted = Profile().fitted({key: before}, {key: ratio * before})

    assert predicted(fitted) == pytest.approx(ratio * before)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[",
            snapshot("""\
a profile is JSON: Expecting value: line 1 column 2 (char 1)
  profile.json
help: write {"H200 update": {"flops": 0.5, "hbm": 0.4}, ...}\
"""),
        ),
        (
            "[1]",
            snapshot("""\
a profile is a table; got [1]
  profile.json
help: write {"H200 update": {"flops": 0.5, "hbm": 0.4}, ...}\
"""),
        ),
        (
            '{"H200": {}}',
            snapshot("""\
`H200` names no GPU and kind of task
  profile.json
help: write {"H200 update": {"flops": 0.5, "hbm": 0.4}, ...}\
"""),
        ),
        (
            '{"H200 update": 1}',
            snapshot("""\
`H200 update` must be a table of speeds; got 1
  profile.json
help: write {"H200 update": {"flops": 0.5, "hbm": 0.4}, ...}\
"""),
        ),
        (
            '{"H200 update": {"flop": 1}}',
            snapshot("""\
`H200 update` has an unknown speed `flop` (did you mean `flops`?)
  profile.json
help: speeds are flops, hbm, links, start, launch, step, sequence\
"""),
        ),
        (
            '{"H200 update": {"flops": -1}}',
            snapshot("""\
`flops` of `H200 update` must be a number above 0; got -1
  profile.json
help: write {"H200 update": {"flops": 0.5, "hbm": 0.4}, ...}\
"""),
        ),
    ],
)
def test_a_text_that_is_no_profile_is_refused(text, message):
    with pytest.raises(DataError) as error:
        Profile.from_json(text, where="  profile.json")

    assert str(error.value) == message


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.json` cannot be read"):
        Profile.load(tmp_path / "none.json")
