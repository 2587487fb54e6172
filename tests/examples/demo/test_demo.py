import subprocess
import sys
from pathlib import Path

from inline_snapshot import snapshot

DEMO = Path(__file__).parents[3] / "examples" / "demo" / "demo.py"


def test_smollm2_by_ppo_is_refused_before_anything_starts(tmp_path):
    command = [sys.executable, DEMO, "--model", "smollm2", "--algo", "ppo"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == snapshot(
        "demo.py: error: --model smollm2 has a run file for grpo only"
    )
    assert not list(tmp_path.iterdir())
