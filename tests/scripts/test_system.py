import shutil
import subprocess
from pathlib import Path

from inline_snapshot import snapshot

SCRIPT = Path(__file__).parents[2] / "scripts" / "system.sh"


def test_without_apt_it_lists_what_to_install_and_exits_2(tmp_path):
    (tmp_path / "bash").symlink_to(shutil.which("bash"))
    (tmp_path / "id").symlink_to(shutil.which("id"))
    environment = {"PATH": str(tmp_path), "PYTHON": "python-that-is-not-there"}

    done = subprocess.run(
        [tmp_path / "bash", SCRIPT], env=environment, capture_output=True, text=True
    )

    assert done.returncode == 2
    assert done.stderr == snapshot("""\
apt-get could not install them
please install these, then run the same command again:
  Python 3.11 or newer (python-that-is-not-there is not; name one: make PYTHON=/path/to/python3.11)
  the venv and ensurepip modules of python-that-is-not-there (Debian: python3-venv)
  graphviz, for pictures of plans (the command dot)
""")
