#!/bin/sh
# Node.js and npm: installed with the system's package manager where we may, else named in one line.
set -eu
command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1 && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "setup: installing nodejs npm"
    if apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null; then
        exit 0
    fi
fi
echo "setup: missing: nodejs npm; tests that need them are skipped (sudo apt-get install nodejs npm)" >&2
[ "${CI:-}" != true ]
