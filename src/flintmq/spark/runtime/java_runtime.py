"""The Java runtime that Spark needs: is there one, is it new enough, and how to get one."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from flintmq.errors import FlintError

JAVA_MAJOR_MIN: Final = 17
_ANSWER_SECONDS_MAX: Final = 30
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_INSTALL: Final = (
    ("apt-get", "sudo apt-get install openjdk-17-jre-headless"),
    ("dnf", "sudo dnf install java-17-openjdk-headless"),
    ("yum", "sudo yum install java-17-openjdk-headless"),
    ("zypper", "sudo zypper install java-17-openjdk-headless"),
    ("pacman", "sudo pacman -S jre17-openjdk-headless"),
    ("apk", "sudo apk add openjdk17-jre-headless"),
    ("brew", "brew install openjdk@17"),
)

Which = Callable[[str], str | None]


_processes: Final[set["subprocess.Popen[bytes]"]] = set()
"""The Java processes of the jobs of this process; there is one at most."""
_ending: Final[set["subprocess.Popen[bytes]"]] = set()
"""Those that were told to end."""


class JavaRuntimeError(FlintError):
    """There is no Java runtime that Spark could use."""


@contextmanager
def known_java(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Have `end_java` find a Java process that a job has started."""
    _processes.add(process)
    try:
        yield
    finally:
        _processes.discard(process)
        _ending.discard(process)


def is_ending(process: "subprocess.Popen[bytes]") -> bool:
    """Whether a Java process was told to end: what it answers is in disorder then."""
    return process in _ending


def end_java() -> None:
    """Tell the Java process of a job to end; calls to it fail then, instead of waiting.

    A signal that ends a job while Java works for it needs this: on the way out PySpark calls Java
    once more, behind the call that was interrupted.
    """
    for process in list(_processes):
        _ending.add(process)
        process.terminate()


def require_java(
    environment: Mapping[str, str] | None = None, *, which: Which = shutil.which
) -> Path:
    """Return the ``java`` that Spark will start; JavaRuntimeError tells how to get one."""
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    # Spark's scripts take JAVA_HOME before the path, and do not look further if it is wrong.
    found = which(str(Path(home) / "bin" / "java")) if home else which("java")
    if found is None:
        where = f"JAVA_HOME is {home}, and there is no bin/java in it" if home else "there is none"
        raise JavaRuntimeError(f"Spark needs Java {JAVA_MAJOR_MIN}, {where}; {_advice(which)}")
    major = _major(found)
    if major < JAVA_MAJOR_MIN:
        raise JavaRuntimeError(
            f"Spark needs Java {JAVA_MAJOR_MIN}, and {found} is "
            f"{f'Java {major}' if major else 'not a Java that tells its version'}; {_advice(which)}"
        )
    return Path(found)


def _major(java: str) -> int:
    """Return the major version of a runtime, 0 if it does not tell."""
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match else 0


def _advice(which: Which) -> str:
    for program, command in _INSTALL:
        if which(program) is not None:
            return f"install it: {command}"
    return "install it, for example from https://adoptium.net"
