#!/bin/sh
# Make a virtual environment in $1 with a Python that is new enough, or say what is missing.
set -eu

venv=$1
check='import sys, venv, ensurepip; sys.exit(0 if sys.version_info >= (3, 11) else 1)'

if [ -n "${PYTHON:-}" ]; then
    candidates=$PYTHON
else
    candidates="python3.13 python3.12 python3.11 python3.14 python3 python"
fi

for python in $candidates; do
    # A name on the PATH may be a shim that runs nothing, so each is really tried.
    if "$python" -c "$check" >/dev/null 2>&1; then
        "$python" -m venv "$venv"
        exit 0
    fi
done

{
    echo "Ranklings needs Python 3.11 or newer with its venv module, and found none."
    echo "Tried: $candidates"
    echo "Install it (on Debian and Ubuntu: apt install python3 python3-venv), or name yours:"
    echo "    make PYTHON=/path/to/python3.12 ${MAKECMDGOALS:-grade}"
} >&2
exit 2
