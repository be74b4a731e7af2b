"""Java and Maven as the tests need them: found, or skipped with a word; jars and classes built."""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import pytest

JAVA_VERSION_MIN: Final = 17
BUILD_TIMEOUT_S: Final = 300
SOURCES: Final = Path(__file__).parents[2] / "interop" / "java"
TARGET: Final = SOURCES / "target"

# What lives for seconds is over before Java has compiled anything well.
_LIGHT_FLAGS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
JVM_FLAGS: Final = (
    *_LIGHT_FLAGS,
    "-Dfile.encoding=UTF-8",
    # Otherwise every server makes up a certificate when it starts, which takes seconds.
    "-Dtls.server.mode=disabled",
    # RocketMQ 4.9 unmaps its files through members that Java 17 has closed.
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)


@dataclass(frozen=True, slots=True)
class JavaToolchain:
    """A Java that can run the official broker, and our programs compiled beside it."""

    java: str
    class_path: str

    @classmethod
    def find(cls, project: Path = SOURCES, *, rocketmq: str | None = None) -> "JavaToolchain":
        """Build what is missing; without Java or Maven skip the test, or fail it in CI.

        ``project`` is a directory with programs and a ``pom.xml``; ``rocketmq`` a release other
        than the one that stands there.
        """
        java, javac, maven = shutil.which("java"), shutil.which("javac"), shutil.which("mvn")
        if java is None or javac is None or maven is None:
            give_up("java, javac (17 or newer) and mvn must be on the PATH")
        version = _java_version(java)
        if version < JAVA_VERSION_MIN:
            give_up(f"Java {version} found, {JAVA_VERSION_MIN} needed")
        with _build_lock():
            jars = _class_path(maven, project, rocketmq)
            classes = _compile(javac, project, jars, version)
        return cls(java, f"{classes}{os.pathsep}{jars}")

    @classmethod
    def servers(cls, rocketmq: str) -> "JavaToolchain":
        """Return a Java that runs the servers of another release; our programs are not with it."""
        java, maven = shutil.which("java"), shutil.which("mvn")
        if java is None or maven is None:
            give_up("java (17 or newer) and mvn must be on the PATH")
        with _build_lock():
            return cls(java, _class_path(maven, SOURCES, rocketmq))

    def command(self, main_class: str, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
        """Return the command line that runs ``main_class``."""
        return [self.java, *JVM_FLAGS, *flags, "-cp", self.class_path, main_class, *arguments]


def give_up(reason: str) -> NoReturn:
    """Skip: not everybody has Java or Node.js.  The machine that guards the project has to."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"interop tests cannot run in CI: {reason}")
    pytest.skip(f"an interop test is not run: {reason}")


def _java_version(java: str) -> int:
    text = _run([java, "-version"]).stderr
    match = re.search(r'version "(\d+)', text)
    return int(match[1]) if match else 0


def _class_path(maven: str, project: Path, rocketmq: str | None) -> str:
    """Return the jars that ``pom.xml`` names; Maven is asked once for every version of it."""
    pom = project / "pom.xml"
    answer = TARGET / f"class-path-{_digest(pom)}{f'-{rocketmq}' if rocketmq else ''}.txt"
    if answer.exists():
        jars = answer.read_text().strip()
        if all(Path(jar).exists() for jar in jars.split(os.pathsep)):
            return jars
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:build-classpath"]
    command += [f"-Dmdep.outputFile={answer}"]
    if rocketmq is not None:
        command.append(f"-Drocketmq.version={rocketmq}")
    # First without the network: it is faster, and enough once the jars are there.
    for attempt in ([*command, "-o"], command):
        done = _run(
            attempt, MAVEN_OPTS=f"{' '.join(_LIGHT_FLAGS)} {os.environ.get('MAVEN_OPTS', '')}"
        )
        if done.returncode == 0:
            break
    else:
        give_up(f"Maven cannot get the jars:\n{_tail(done)}")
    return answer.read_text().strip()


def _compile(javac: str, project: Path, jars: str, version: int) -> Path:
    sources = sorted(project.glob("*.java"))
    told = hashlib.sha256(jars.encode()).hexdigest()[:8]
    classes = TARGET / f"classes-{version}-{_digest(*sources)}-{told}"
    if not classes.exists():
        staged = TARGET / "classes-new"
        shutil.rmtree(staged, ignore_errors=True)
        command = [javac, "-Xlint:all", "-Werror", "-d", str(staged), "-cp", jars]
        done = _run([*command, *map(str, sources)])
        if done.returncode != 0:
            pytest.fail(f"the Java programs do not compile:\n{_tail(done)}")
        staged.rename(classes)
    return classes


def _digest(*paths: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def _run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )


def _tail(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stdout + done.stderr)[-4000:]


@contextlib.contextmanager
def _build_lock() -> Iterator[None]:
    """Let one of several test processes build at a time."""
    TARGET.mkdir(exist_ok=True)
    with (TARGET / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
