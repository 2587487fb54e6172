"""Plans of run files: placement, seconds, edges, memory; nothing is loaded and no GPU is held."""

import json
import subprocess
import sys
import tomllib

import pytest
from inline_snapshot import external_file, snapshot

from flowrl.cli import main
from flowrl.errors import FlowrlError, ProgramError
from flowrl.ir.action import Does
from flowrl.ir.plan import Plan
from flowrl.ir.printer import text as printed
from flowrl.report.options import settings
from flowrl.report.plan import plan_difference, plan_json, plan_text
from tests.report.conftest import EXAMPLES, example, planned

SMALL = tuple(
    f'models.{role}.path="Qwen/Qwen2.5-1.5B"' for role in ("policy", "reference", "critic")
)
CLUSTERS = {
    "1xH200": "1xH200",
    "8xH100": "8xH100",
    "4x8xA100": "4x8xA100-80G",
    "mixed": "8xH100 + 8xA100-80G",
}


def small(name):
    """Return what makes the models of an example fit on one GPU."""
    roles = [text for text in SMALL if name == "ppo" or "critic" not in text]
    return (*roles, *(['reward.reward={model="Qwen/Qwen2.5-1.5B"}'] if name == "ppo" else []))


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_plans_of_the_examples(name, cluster):
    """`pytest --inline-snapshot=fix` writes them anew."""
    sets = settings(CLUSTERS[cluster], None) + (small(name) if cluster == "1xH200" else ())

    text = plan_text(example(name), sets)

    assert text + "\n" == external_file(f"plans/{name}-{cluster}.txt")


def test_a_model_that_the_program_has_not_is_said_and_counted_nowhere():
    sets = (*settings("8xH100", None), "program.file=dapo")

    text, data = plan_text(example("grpo"), sets), plan_json(example("grpo"), sets)

    said = [line for line in text.splitlines() if "reference" in line]
    assert json.loads(data)["notes"] == said
    assert said == snapshot(
        ["`reference` is never read and never loaded: `dapo` has no such model (grpo.toml:12)."]
    )


def test_a_pool_that_only_such_a_model_claims_is_said_and_planned_nowhere():
    pools = """{
trains = {gpus = 4, workers = 4, roles = ["policy"]},
compares = {gpus = 8, workers = 8, roles = ["reference"]}}""".replace("\n", " ")
    sets = (*settings("8xH100", None), f"cluster.pools={pools}", "program.file=dapo")

    text = plan_text(example("grpo"), sets)

    placed = [line for line in text.splitlines() if line.startswith("pool ") and "ranks" in line]
    (said,) = (line for line in text.splitlines() if "pools.compares" in line)
    assert placed == snapshot(["pool trains: 4 H100, ranks 0-3"])
    assert said.startswith(
        "[cluster.pools.compares] changes nothing: nothing that the program does lives there"
    )
    assert json.loads(plan_json(example("grpo"), sets))["notes"][-1] == said


def test_a_plan_as_json_carries_placement_actions_and_forecast():
    """`pytest --inline-snapshot=fix` writes it anew; the graph is left out here."""
    text = plan_json(example("grpo"), settings("8xH100", None))

    shown = {name: value for name, value in json.loads(text).items() if name != "body"}
    assert shown == external_file("plans/grpo-8xH100.json")


def test_a_plan_as_json_is_read_again():
    made = plan_json(example("ppo"), settings("4x8xA100-80G", None))

    plan = Plan.from_json(made)

    assert plan.to_json() == made
    assert plan.actions[0].does in Does
    lowered = planned(example("ppo"), settings("4x8xA100-80G", None)).graph
    assert printed(plan.graph()) == printed(lowered)


def test_the_command_line_prints_the_plan_as_text_or_as_json(capsys):
    arguments = ["plan", example("grpo"), "--cluster", "8xH100"]

    assert main(arguments) == main([*arguments, "--json"]) == 0

    text, brace, rest = capsys.readouterr().out.partition("{")
    assert text.startswith("grpo on 8xH100: ")
    assert Plan.from_json(brace + rest).machines == "8xH100"


def test_gpus_that_no_pool_has_are_named():
    four = "cluster.pools.all={gpus=4, workers=4, roles=['policy', 'reference', 'data', 'reward']}"

    lines = plan_text(example("grpo"), (*settings("8xH100", None), four)).splitlines()

    assert "unused: 4 H100, ranks 4-7" in lines


def test_what_does_not_fit_is_refused_with_its_peak_and_the_cheapest_fix():
    with pytest.raises(ProgramError) as refused:
        plan_text(example("ppo"), settings("1xH200", None))

    assert str(refused.value) == snapshot("""\
the step doesn't fit on 1xH200: of all placements, the closest fit needs 68.2 GB more than the 137.4 GB of host memory a GPU
  in the host memory of 1 GPU: policy.train (1, offload) 106.6 GB, critic.train (1, offload) 99.0 GB
help: take 2 GPUs (2x1xH200): a step of 296 s\
""")


def test_a_run_file_without_machines():
    with pytest.raises(FlowrlError) as refused:
        plan_text(example("grpo"), ())

    assert str(refused.value) == snapshot("""\
there are no machines to plan for
  grpo.toml
help: name them: `[cluster] machines = "8xH100"`, or `--cluster 8xH100`; "1xCPU" is the CPU\
""")


def test_longer_responses_take_longer():
    cluster = settings("8xH100", None)
    short, long = (
        planned(example("grpo"), (*cluster, *settings(None, lengths))).found.seconds
        for lengths in ("256:300/1024", "256:900/2048")
    )

    assert short < long


def test_pools_of_the_run_file_are_kept():
    pools = (
        "cluster.pools.train={gpus=4, workers=4, roles=['policy.train', 'reference'], layouts={'policy.train'='fsdp4'}}",
        "cluster.pools.rollout={gpus=4, workers=4, roles=['policy.generate', 'data', 'reward']}",
    )

    plan = planned(example("grpo"), (*settings("8xH100", None), *pools))

    assert {
        pool.name: (list(map(str, pool.seats)), len(pool.ranks)) for pool in plan.found.pools
    } == {
        "train": (["reference.score", "policy.train"], 4),
        "rollout": (["policy.generate"], 4),
    }
    assert {str(s): str(its.layout) for s, its in plan.found.seats.items()}[
        "policy.train"
    ] == "fsdp4"


@pytest.mark.parametrize(
    "pools", [(), ("cluster.pools.all={gpus=2, workers=2, roles=['policy']}",)]
)
def test_what_the_run_file_shards_is_sharded(pools):
    sets = (*settings("2xH100", None), *SMALL[:2], *pools)
    shard = 'engines.policy.train.shard="fsdp2"'

    plain, sharded = (planned(example("grpo"), s).found.seats for s in (sets, (*sets, shard)))

    layouts = [{str(s): str(its.layout) for s, its in seats.items()} for seats in (plain, sharded)]
    assert [its["policy.train"] for its in layouts] == ["dp2", "fsdp2"]


def test_the_keys_that_docs_name_plan_what_a_run_does():
    page = (EXAMPLES.parents[1] / "docs" / "compiler.md").read_text()
    section = page.partition("## From a plan to a run")[2]
    keys = tomllib.loads(section.partition("```toml")[2].partition("```")[0])

    plan = planned(example("grpo"), [f"{key}={value}" for key, value in leaves(keys)])

    assert {
        str(seat): f"{its.layout} {its.residency}" for seat, its in plan.found.seats.items()
    } == {
        "policy.generate": "tp2 x dp4 resident",
        "reference.score": "dp8 resident",
        "policy.train": "fsdp8 resident",
    }
    assert f"{plan.found.seconds:.2f} s a step" in section


def leaves(table, path=()):
    """Yield each key of a table with its value as TOML."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, json.dumps(key)))
        else:
            yield ".".join((*path, json.dumps(key))), json.dumps(value)


@pytest.mark.parametrize(
    ("pools", "found"),
    [
        ({"all": "policy reference"}, {"data": "data reward"}),
        ({"all": "policy reference data"}, {"all": "data", "data": "reward"}),
        ({"all": "policy reference", "host": "data reward"}, {"host": "data reward"}),
        ({"data": "policy reference"}, {"data": "data reward"}),
    ],
)
def test_data_and_rewards_live_where_the_run_file_says(pools, found):
    sets = [f"cluster.pools.{name}={{roles={roles.split()}}}" for name, roles in pools.items()]

    plan = planned(example("grpo"), (*settings("8xH100", None), *sets))

    homes = {
        pool.name: " ".join(role for role in pool.roles if role in ("data", "reward"))
        for pool in plan.cluster.pools
    }
    assert {name: roles for name, roles in homes.items() if roles} == found
    assert len(homes) == len(plan.cluster.pools)


def test_residencies_of_the_run_file_are_kept():
    pool = (
        "cluster.pools.all={roles=['policy', 'reference', 'data', 'reward'], "
        "residencies={policy='drop', 'policy.train'='offload'}}"
    )

    plan = planned(example("grpo"), (*settings("8xH100", None), pool))

    assert {str(seat): its.residency for seat, its in plan.found.seats.items()} == {
        "policy.generate": "drop",
        "reference.score": "resident",
        "policy.train": "offload",
    }


def test_a_model_scores_with_the_engine_that_trains_it_in_the_pool_of_both():
    pool = "cluster.pools.all={roles=['policy', 'critic', 'reference', 'data', 'reward']}"

    plan = planned(example("ppo"), (*settings("8xH100", None), pool))

    assert "critic.train" in map(str, plan.found.seats)
    assert "critic.score" not in map(str, plan.found.seats)


def test_a_residency_that_no_placement_can_keep():
    pool = (
        "cluster.pools.all={roles=['policy', 'reference', 'data', 'reward'], "
        "residencies={'policy.train'='drop'}}"
    )

    with pytest.raises(FlowrlError) as refused:
        plan_text(example("grpo"), (*settings("8xH100", None), pool))

    assert str(refused.value) == snapshot("""\
`policy.train` has the residency `drop`, but no other use of `policy` trains the weights, so nothing would bring them back
  --set cluster.pools.all={roles=['policy', 'reference', 'data', 'reward'], residencies={'policy.train'='drop'}}
help: let it be `resident`, or go to host memory with `offload`\
""")


def test_the_difference_of_two_plans():
    text = plan_difference(example("grpo"), example("ppo"), settings("8xH100", None))

    assert "-grpo on 8xH100" in text
    assert any(line.startswith("+  critic.train") for line in text.splitlines())
    same = plan_difference(example("grpo"), example("grpo"), settings("8xH100", None))
    assert same.endswith("have the same plan.")


@pytest.mark.parametrize("more", [[example("grpo")], ["--json"]])
def test_what_a_difference_has_no_use_for_is_refused(more, capsys):
    code = main(["plan", "--diff", example("grpo"), example("ppo"), *more])

    assert code == 1
    assert capsys.readouterr().err == snapshot("""\
error: `--diff` takes neither another run file nor `--json`
help: `flowrl plan --diff A B` compares two run files, as text
""")


def test_planning_imports_no_torch():
    code = (
        "import sys; from flowrl.report.options import settings; "
        "from flowrl.report.plan import plan_text; "
        f"plan_text({example('grpo')!r}, settings('8xH100', None)); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'ray', 'transformers', 'numpy')))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
