#!/bin/sh
# Makes the virtual environment $1 with $PYTHON; brings Debian's python3-venv where it may.
set -eu
venv=$1
python=${PYTHON:-python3}
"$python" - <<'PY' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit("flintmq needs Python 3.11 or newer; this is " + sys.version.split()[0])
PY
if "$python" -m venv "$venv" >/dev/null 2>&1; then exit 0; fi
rm -rf "$venv"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "setup: installing python3-venv"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
    exec "$python" -m venv "$venv"
fi
echo "setup: this Python cannot make virtual environments; run: sudo apt-get install python3-venv" >&2
exit 1
