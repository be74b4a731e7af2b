"""Builds FlintMQ as for a release and tries the wheel in empty environments.

    python tools/release_check.py [--extra NAME ...] [--dist DIRECTORY] [--constraint FILE]

1. The sdist is built from this tree and unpacked; the wheel is built from what it holds, as an
   installer without our repository would.
2. For no extra and for each extra of pyproject.toml the wheel is installed by pip into a new
   virtual environment, and `tools/smoke.py` is run there, far from this tree.

The last lines are one for each extra; the exit code is 0 if all of them are ok. Packages come in
the newest versions that pyproject.toml allows, as users get them; a constraint file pins them.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SMOKE: Final = ROOT / "tools" / "smoke.py"
NO_EXTRA: Final = "(none)"
MIB: Final = 1 << 20

WHEEL_MUST_HOLD: Final = ("flintmq/py.typed", "pyspark_flintmq/py.typed", "flintmq/__init__.py")
WHEEL_MUST_NOT_HOLD: Final = ("tests/", "bench/", "examples/", "tools/")


class CheckError(Exception):
    """What was built or installed is not what it should be."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the wheel did in one environment."""

    extra: str
    problem: str
    install_seconds: float = 0.0
    smoke_seconds: float = 0.0
    size: int = 0

    def line(self) -> str:
        """Return the line of the report."""
        verdict = f"FAILED: {self.problem}" if self.problem else "ok"
        return (
            f"release-check: {self.extra:<8} install {self.install_seconds:6.1f} s  "
            f"{self.size / MIB:7.1f} MiB  smoke {self.smoke_seconds:6.1f} s  {verdict}"
        )


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command that shall succeed, without what would lead it back to this tree."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    done = subprocess.run(command, cwd=cwd, env=environment, check=False)
    if done.returncode:
        raise CheckError(f"{Path(command[0]).name} ended with {done.returncode}")


def extras() -> list[str]:
    """Return the names of all extras of this project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return list(project["optional-dependencies"])


def build(work: Path, dist: Path) -> Path:
    """Build the sdist, and the wheel from the sdist; return the wheel."""
    began = time.monotonic()
    hatchling = (sys.executable, "-m", "hatchling", "build", "-d", dist)
    run(*hatchling, "-t", "sdist", cwd=ROOT)
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(work, filter="data")
    run(*hatchling, "-t", "wheel", cwd=work / sdist.name.removesuffix(".tar.gz"))
    (wheel,) = dist.glob("*.whl")
    check_wheel(wheel)
    for file in (sdist, wheel):
        print(f"release-check: {file.name}  {file.stat().st_size / MIB:.1f} MiB")
    print(f"release-check: built in {time.monotonic() - began:.1f} s", flush=True)
    return wheel


def check_wheel(wheel: Path) -> None:
    """Raise CheckError unless the wheel holds every module of the tree, and nothing else of it."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    modules = {
        str(path.relative_to(ROOT / "src"))
        for package in ("flintmq", "pyspark_flintmq")
        for path in (ROOT / "src" / package).rglob("*.py")
    }
    missing = sorted((modules | set(WHEEL_MUST_HOLD)) - names)
    if missing:
        raise CheckError(f"the wheel lacks {', '.join(missing[:5])}")
    foreign = sorted(name for name in names if name.startswith(WHEEL_MUST_NOT_HOLD))
    if foreign:
        raise CheckError(f"the wheel holds {', '.join(foreign[:5])}")


def directory_size(directory: Path) -> int:
    """Return the bytes of all files below a directory."""
    files = (path for path in directory.rglob("*") if not path.is_symlink())
    return sum(path.stat().st_size for path in files if path.is_file())


def try_extra(extra: str, wheel: Path, work: Path, constraint: Path | None) -> Outcome:
    """Install the wheel with an extra into a new environment and run the smoke test there."""
    home = work / f"venv-{extra.strip('()')}"
    wanted = str(wheel) if extra == NO_EXTRA else f"{wheel}[{extra}]"
    pinned = () if constraint is None else ("--constraint", constraint)
    began = installed = time.monotonic()
    size, problem = 0, ""
    print(f"release-check: {extra}", flush=True)
    try:
        run(sys.executable, "-m", "venv", home, cwd=work)
        python = home / "bin" / "python"
        before = directory_size(home)
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, *pinned, wanted, cwd=work)
        installed = time.monotonic()
        size = directory_size(home) - before
        # -I: neither this directory nor the user's own packages are looked at.
        run(python, "-I", SMOKE, *([] if extra == NO_EXTRA else [extra]), cwd=work)
    except CheckError as error:
        problem = str(error)
    finally:
        ended = time.monotonic()
        shutil.rmtree(home, ignore_errors=True)
    return Outcome(extra, problem, installed - began, ended - installed, size)


def main() -> int:
    """Build, try every extra, report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    known = [NO_EXTRA, *extras()]
    parser.add_argument("--extra", action="append", choices=known, help="only this one")
    parser.add_argument("--dist", type=Path, help="keep sdist and wheel in this directory")
    parser.add_argument("--constraint", type=Path, help="pins for pip, without hashes")
    options = parser.parse_args()
    constraint = options.constraint and options.constraint.resolve()
    with tempfile.TemporaryDirectory(prefix="flintmq-release-") as name:
        work = Path(name)
        built = work / "dist"
        built.mkdir()
        try:
            wheel = build(work, built)
        except CheckError as error:
            print(f"release-check: FAILED: {error}", file=sys.stderr)
            return 1
        if options.dist is not None:
            shutil.copytree(built, options.dist, dirs_exist_ok=True)
        outcomes = [try_extra(each, wheel, work, constraint) for each in options.extra or known]
    for outcome in outcomes:
        print(outcome.line())
    return 1 if any(outcome.problem for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
