"""The load generator of the benchmarks (``bench/load``, Go) counts and measures what it says."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).parents[2] / "bench" / "load"
TIMEOUT_S: Final = 300
VERSIONS: Final = {"epoll": (), "portable": ("-tags=portable",)}
"""On Linux one thread serves all connections; elsewhere each has a goroutine."""


@pytest.fixture(scope="module")
def go() -> str:
    """Skip: not everybody has Go.  The machine that guards the project has to."""
    found = shutil.which("go")
    if found is None:
        reason = "the load generator is not tested: go must be on the PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def test_the_sources_are_in_gos_format(go: str) -> None:
    assert run(Path(go).with_name("gofmt"), "-l", ".") == ""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_generator_measures_a_fake_broker_as_it_is(go: str, version: str) -> None:
    run(go, "vet", *VERSIONS[version], ".")
    run(go, "test", *VERSIONS[version], ".")


def run(program: str | Path, *arguments: str) -> str:
    """Run a program of Go where the generator is, without a look at the network."""
    ended = subprocess.run(
        [program, *arguments],
        cwd=SOURCE,
        env={**os.environ, "GOPROXY": "off", "GOTOOLCHAIN": "local"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout
