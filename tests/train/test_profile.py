"""A run measured, and what plans then predict."""

from pathlib import Path

import pytest

from flowrl.compiler.forecast import forecast
from flowrl.compiler.target import Profile
from flowrl.config.planned import plan_run
from flowrl.config.run_file import load_run_file
from flowrl.errors import RunFileError
from flowrl.runtime.executor import Step
from flowrl.train.profile import fitted, measured, profile_run

ON_CPU = ('cluster.machines="1xCPU"', "workload.response_tokens=6", "workload.prompt_tokens=3")


def planned(file, *sets):
    return plan_run(load_run_file(file, (*ON_CPU, *sets)))[1]


def step(generate, update, elapsed, sampled=96.0):
    """Return a step as an executor gives it: 16 sequences of 6 tokens unless said otherwise."""
    seconds = {"generate": generate, "score": 0.5, "update": update}
    return Step({}, {"tokens/sampled": sampled}, seconds, elapsed)


def by_phase(plan):
    """Return the predicted seconds of a plan by phase."""
    found = {}
    for each in forecast(plan).tasks:
        found[each.task.phase] = found.get(each.task.phase, 0.0) + each.spent.seconds
    return found


def test_a_plan_predicts_the_run_that_its_profile_is_of(folder, tmp_path):
    plan = planned(folder.write("grpo"))
    steps = [step(1.0, 3.0, 5.0), step(2.0, 3.5, 6.5), step(1.5, 9.0, 12.0)]

    found = fitted(plan, steps)
    found.profile.save(tmp_path / "profile.json")
    again = planned(folder.write("grpo"), f'workload.profile="{tmp_path}/profile.json"')

    assert by_phase(again) == pytest.approx({"generate": 1.5, "score": 0.5, "update": 3.5})
    assert found.step == 6.5
    assert found.rest == pytest.approx(0.5)


def test_other_kinds_of_gpus_keep_their_speeds(folder):
    found = fitted(planned(folder.write("grpo")), [step(1.0, 3.0, 5.0)])

    assert found.profile.of("H100", "update") == Profile().of("H100", "update")
    assert found.profile.of("CPU", "update") != Profile().of("CPU", "update")


def test_the_profile_is_of_the_lengths_that_were_sampled(folder):
    plan = planned(folder.write("grpo"))

    long, short = (fitted(plan, [step(1.0, 3.0, 5.0, n)]).profile for n in (96.0, 48.0))
    slower, faster = (profile.of("CPU", "generate") for profile in (short, long))

    assert slower.flops < faster.flops, "half the tokens in the same time"


def test_a_phase_that_no_step_measured_keeps_its_speeds(folder):
    done = Step({}, {"tokens/sampled": 96.0}, {"generate": 1.0, "update": 3.0}, 5.0)

    found = fitted(planned(folder.write("grpo")), [done])

    assert [phase.name for phase in found.phases] == ["generate", "update"]
    assert found.profile.of("CPU", "logprobs") == Profile().of("CPU", "logprobs")


def test_seconds_of_pools_are_added(folder):
    local = step(1.0, 3.0, 5.0)
    seconds = {"rollout/generate": 1.0, "reference/score": 0.5, "train/update": 3.0}
    on_ray = Step({}, local.metrics, seconds, 5.0)
    plan = planned(folder.write("grpo"))

    assert fitted(plan, [on_ray]).profile == fitted(plan, [local]).profile


def test_a_run_is_measured_without_its_warm_up_and_leaves_nothing(folder, tmp_path):
    run = load_run_file(folder.write("grpo"), (*ON_CPU, f'train.folder="{tmp_path}/there"'))
    first = []

    steps = measured(run, 2, first.append)

    assert len(steps) == 2
    assert all(done.seconds["update"] > 0 for done in steps)
    assert not list(Path(tmp_path / "there").rglob("*.safetensors"))


@pytest.mark.parametrize("program", ["grpo", "sft"])
def test_a_profile_of_a_real_run_predicts_its_phases(folder, program, tmp_path):
    found = profile_run(folder.write(program), ON_CPU, 1, str)
    found.profile.save(tmp_path / "profile.json")

    lengths = f"workload.response_tokens={found.response or 6}"
    given = (f'workload.profile="{tmp_path}/profile.json"', lengths)
    again = by_phase(planned(str(folder.path / "run.toml"), *given))

    assert again == pytest.approx({p.name: p.measured for p in found.phases}, rel=0.05)
    assert not (folder.path / "out").exists()


def test_a_run_file_without_machines_has_no_profile(folder):
    with pytest.raises(RunFileError, match="no machines to plan for"):
        profile_run(folder.write("sft"), (), 1, str)
