#!/usr/bin/env bash
# Installs the system packages that are missing, by apt-get as root or through sudo.
# Where that cannot be done it lists them and exits 2.
set -euo pipefail

python=${PYTHON:-python3}

has_python() { "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
has_venv() { "$python" -c 'import venv, ensurepip' 2>/dev/null; }
has_graphviz() { command -v dot >/dev/null; }

missing() {
  has_python || echo python3
  has_venv || echo python3-venv
  has_graphviz || echo graphviz
}

apt_install() {
  local as_root=()
  command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || return 1
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq --yes --no-install-recommends "$@" >/dev/null
}

wanted=$(missing)
[ -z "$wanted" ] && exit 0

echo "system packages missing:" $wanted
# shellcheck disable=SC2086 # one argument a package
apt_install $wanted || echo "apt-get could not install them" >&2

still=$(missing)
[ -z "$still" ] && exit 0

{
  echo "please install these, then run the same command again:"
  has_python || echo "  Python 3.11 or newer ($python is not; name one: make PYTHON=/path/to/python3.11)"
  has_venv || echo "  the venv and ensurepip modules of $python (Debian: python3-venv)"
  has_graphviz || echo "  graphviz, for pictures of plans (the command dot)"
} >&2
exit 2
