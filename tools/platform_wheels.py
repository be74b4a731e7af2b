"""Checks that every pinned dependency has a wheel for each platform that docs/platforms.md names.

    python -m tools.platform_wheels [--python VERSION ...]

pip is asked what it would install there, by the hashes of the lock files, and installs nothing. It
needs the package index, so it is a part of `make release-check` and of no test.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")

_VERSION_LIMIT: Final = re.compile(
    r" ; python_full_version (?P<sign><|>=) '(?P<version>[0-9.]+)'(?= )"
)

SOURCE_ONLY: Final = {"pyspark": "Spark publishes a source archive, which is Python and Java"}
"""Packages without wheels that need no compiler all the same, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """A platform: what pip calls it, and the lock files that have to be installable there."""

    name: str
    tags: tuple[str, ...]
    locks: tuple[str, ...]


def _manylinux(machine: str) -> tuple[str, ...]:
    """Return the tags of wheels for systems with glibc 2.28 or newer."""
    versions = [f"manylinux_2_{minor}_{machine}" for minor in range(28, 16, -1)]
    return (*versions, f"manylinux2014_{machine}")


def _macos(machine: str, oldest: int) -> tuple[str, ...]:
    """Return the tags of wheels for macOS 14."""
    versions = [f"{major}_0" for major in range(14, oldest - 1, -1)]
    versions += [f"10_{minor}" for minor in range(16, 8, -1)]
    return tuple(f"macosx_{one}_{kind}" for one in versions for kind in (machine, "universal2"))


PLATFORMS: Final = (
    Platform(name="Linux x86-64", tags=_manylinux("x86_64"), locks=("core", "fast", "spark")),
    Platform(name="Linux arm64", tags=_manylinux("aarch64"), locks=("core", "fast", "spark")),
    Platform(name="macOS arm64", tags=_macos("arm64", 11), locks=("core", "fast", "spark")),
)


def pinned(lock: str) -> Iterator[tuple[str, str]]:
    """Yield the packages of a lock file: their names, and what the file says of them."""
    for entry in re.split(r"\n(?=\S)", lock.strip()):
        name = re.match(r"[A-Za-z0-9._-]+", entry)
        if name is None:
            raise ValueError(f"no package: {entry[:60]!r}")
        yield name[0].lower(), entry


def wheel_requirements(lock: str, python: str) -> str:
    """Return what a lock file has for a Python, as pip is asked for it.

    It lacks packages that have no wheels, and those of one platform.  pip judges by the Python that
    it runs on, so what an entry says of versions is judged here.
    """
    kept = []
    for name, entry in pinned(lock):
        first, line_end, rest = entry.partition("\n")
        if name in SOURCE_ONLY or "platform_machine" in first:
            continue
        if limit := _VERSION_LIMIT.search(first):
            if (_number(python) < _number(limit["version"])) != (limit["sign"] == "<"):
                continue
            first = first.replace(limit[0], "")
        kept.append(first + line_end + rest)
    return "\n".join(kept) + "\n"


def _number(python: str) -> tuple[int, ...]:
    return tuple(map(int, python.split(".")))


def problem_of(platform: Platform, lock: str, python: str) -> str:
    """Return what pip finds no wheel for, on a platform with a Python; nothing if all is there."""
    text = wheel_requirements((ROOT / "requirements" / f"{lock}.lock").read_text(), python)
    tags = [part for tag in platform.tags for part in ("--platform", tag)]
    with tempfile.TemporaryDirectory(prefix="flintmq-wheels-") as work:
        requirements = Path(work, "requirements.txt")
        requirements.write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps",
             "--disable-pip-version-check", "--only-binary", ":all:", "--require-hashes",
             "--ignore-requires-python",  # pip compares with the Python that it runs on.
             "--implementation", "cp", "--python-version", python, *tags,
             "--target", str(Path(work, "nowhere")), "-r", str(requirements)],
            capture_output=True, text=True, check=False, env=os.environ,
        )  # fmt: skip
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: No matching")]
    return (errors or done.stderr.splitlines() or ["pip has failed"])[-1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask for every platform, Python and lock file; report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only this version")
    options = parser.parse_args(arguments)
    is_whole = True
    for platform in PLATFORMS:
        for python in options.python or PYTHONS:
            for lock in platform.locks:
                problem = problem_of(platform, lock, python)
                is_whole &= not problem
                place = f"{platform.name}, Python {python}, {lock}.lock"
                print(f"platform-wheels: {place}: {problem or 'ok'}", flush=True)
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
