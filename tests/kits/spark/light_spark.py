"""What makes Spark cheap that lives for a minute: how its Java and its Pythons are started.

Spark loads some ten thousand classes until its first answer, which is half of what a short job
costs.  Java can keep them as it needs them in an archive; one is made for each installation and
kept in ``.run``.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pyspark

_ROOT: Final = Path(__file__).parents[3]
_ARCHIVES: Final = _ROOT / ".run" / "class-archives"
_ON_PATH: Final = Path(__file__).parent / "on_path"
_TRAINING: Final = Path(__file__).parent / "training_driver.py"
_TRAINING_TIMEOUT_S: Final = 300

# Compiling well costs more than it saves.
_FLAGS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

LIGHT_SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings with which Spark evaluates expressions as they are: a handful of rows is over before
Java has compiled the program that Spark writes for them.  Jobs that tests start with the settings
of users, such as those on clusters, in notebooks and of the quick starts, have that program."""

COMPILED_SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
"""Spark's own settings for the same, which a session of a test with millions of rows needs."""


def light_java() -> str:
    """Return the options of Java for drivers, executors, masters and workers."""
    archive = _class_archive()
    # An archive that does not fit, as where the class path is another, is not worth a word.
    return f"{_FLAGS} -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"


def light_python() -> dict[str, str]:
    """Return the environment of a driver whose Python processes do not compile PySpark."""
    path = filter(None, (str(_ON_PATH), os.environ.get("PYTHONPATH")))
    return {"PYTHONPATH": os.pathsep.join(path)}


@cache
def _class_archive() -> Path:
    """Return the archive of Spark's classes; who comes first makes it, and others wait."""
    java = os.environ.get("JAVA_HOME") or shutil.which("java") or ""
    made_of = f"{Path(java).resolve()} {pyspark.__file__} {pyspark.__version__} {_FLAGS}".encode()
    key = hashlib.sha256(made_of + _TRAINING.read_bytes()).hexdigest()[:16]
    archive = _ARCHIVES / f"spark-{key}.jsa"
    with _lock():
        if not archive.exists():
            _make(archive)
    return archive


def _make(archive: Path) -> None:
    staged = archive.with_suffix(".new")
    staged.unlink(missing_ok=True)
    flags = f"{_FLAGS} -XX:ArchiveClassesAtExit={staged} -Xlog:cds=off -Xlog:cds+dynamic=off"
    done = subprocess.run(
        [sys.executable, str(_TRAINING), flags],
        env=os.environ | light_python() | {"PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TRAINING_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert staged.exists(), f"Java has made no archive:\n{done.stderr[-4000:]}"
    for old in _ARCHIVES.glob("spark-*.jsa"):
        old.unlink()
    staged.rename(archive)


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    _ARCHIVES.mkdir(parents=True, exist_ok=True)
    with (_ARCHIVES / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
