#!/bin/sh
# Java 17+ and Maven: installed with the system's package manager where we may, else named in one line.
set -eu
have_java() {
    command -v javac >/dev/null 2>&1 || return 1
    major=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 17 ]
}
packages=""
have_java || packages="openjdk-17-jdk-headless"
command -v mvn >/dev/null 2>&1 || packages="$packages maven"
[ -n "$packages" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "setup: installing $packages"
    if apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $packages >/dev/null; then
        exit 0
    fi
fi
echo "setup: missing:$packages; tests that need them are skipped (sudo apt-get install $packages)" >&2
[ "${CI:-}" != true ]
