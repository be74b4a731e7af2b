"""The brokers that are measured: ours and the official one, each as a process of its own."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.kits.processes.java_process import JavaProcess
from tests.kits.processes.java_toolchain import JavaToolchain

HOST: Final = "127.0.0.1"
STOP_TIMEOUT_S: Final = 60
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PORTS: Final = range(21_000, 29_000, 7)

JAVA_FLAGS: Final = (
    "-Xms1g",
    "-Xmx2g",
    "-XX:MaxDirectMemorySize=512m",
    "-XX:+UseG1GC",
    "-Dfile.encoding=UTF-8",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)
"""With all of the compiler, unlike in the tests, which look for a quick start."""

WITHOUT_TLS: Final = "-Dtls.server.mode=disabled"
"""By default it makes itself a certificate at the start, which takes most of that."""

_LOGBACK: Final = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{path}</file>
    <encoder><pattern>%d %p %c{{1}} %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="file"/></root>
</configuration>
"""


class Server(NamedTuple):
    """A broker that is up, or several that one process has started."""

    name: str
    address: str
    """Where it listens; of several the addresses with commas between them."""
    pid: int
    start_seconds: float
    namesrv: str = ""

    def cpu_seconds(self) -> float:
        """Return the processor time it has used, with the processes that it has started."""
        return sum(map(_cpu_seconds, self._pids()))

    def own_mib(self) -> int:
        """Return its memory that no file stands behind: pages of the store are the kernel's."""
        return sum(map(_own_mib, self._pids()))

    def _pids(self) -> list[int]:
        started = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [self.pid, *map(int, started.split())]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _own_mib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) // 1024
    raise RuntimeError("no RssAnon")


@contextlib.contextmanager
def our_server(
    work: Path,
    *,
    bytecode: Path | None = None,
    settings: Mapping[str, object] | None = None,
    source: Path | None = None,
    broker_count: int = 1,
) -> Iterator[Server]:
    """Run ``flintmq serve`` as it comes: a name server and a broker in one process.

    Several brokers are a process each, beside that of the name server.

    With ``bytecode``, compiled modules are kept there, also where the shell forbids them.
    With ``source``, another tree of ours is run, the ``src`` of a clone at another commit.
    """
    command = [sys.executable, "-m", "flintmq", "serve", "--data", str(work / "data")]
    command += ["--namesrv-port", "0", "--broker-port", "0", "--log-level", "warning"]
    if broker_count > 1:
        command += ["--brokers", str(broker_count)]
    for key, value in (settings or {}).items():
        command += ["--set", f"{key}={value}"]
    environment = dict(os.environ)
    if bytecode is not None:
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(bytecode)
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - started
        words = [word.split("=", 1) for word in line.split()[1:]]
        addresses = ",".join(value for key, value in words if key == "broker")
        name = "FlintMQ" if source is None else "the other tree"
        if broker_count > 1:
            name += f", {broker_count} brokers"
        yield Server(name, addresses, process.pid, seconds, dict(words)["namesrv"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=STOP_TIMEOUT_S)


@contextlib.contextmanager
def java_server(
    work: Path, *, tls: bool = True, settings: Mapping[str, object] | None = None
) -> Iterator[Server]:
    """Run the official broker as it comes, without a name server, which no benchmark asks.

    ``tls`` false has it start without a certificate of its own.
    """
    properties = {
        "brokerIP1": HOST,
        "storePathRootDir": work / "store",
        "storePathCommitLog": work / "store" / "commitlog",
        # Else it refuses what waited for 200 ms, as happens while its code is being compiled.
        "waitTimeMillsInSendQueue": "10000",
        **(settings or {}),
    }
    flags = () if tls else (WITHOUT_TLS,)
    with _java(work, "broker", "BrokerStartup", properties, flags) as server:
        yield server


@contextlib.contextmanager
def java_namesrv(work: Path) -> Iterator[Server]:
    """Run the official name server as it comes."""
    with _java(work, "namesrv", "NamesrvStartup", {}) as server:
        yield server


@contextlib.contextmanager
def _java(
    work: Path,
    package: str,
    main: str,
    properties: Mapping[str, object],
    flags: Sequence[str] = (),
) -> Iterator[Server]:
    """Run a class of RocketMQ with settings in a file, on a free port."""
    toolchain = JavaToolchain.find()
    conf = work / "home" / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / f"logback_{package}.xml").write_text(_LOGBACK.format(path=work / f"{package}.log"))
    port = _free_port()
    lines = [f"{key}={value}\n" for key, value in {"listenPort": port, **properties}.items()]
    file = work / f"{package}.properties"
    file.write_text("".join(lines))
    command = [toolchain.java, f"-Duser.home={work}", *JAVA_FLAGS, *flags]
    command += ["-cp", toolchain.class_path, f"org.apache.rocketmq.{package}.{main}"]
    started = time.perf_counter()
    environment = {"ROCKETMQ_HOME": str(work / "home"), "TZ": "UTC"}
    log = work / f"{package}.out"
    with JavaProcess([*command, "-c", str(file)], log=log, environment=environment) as process:
        process.wait_for("boot success")
        seconds = time.perf_counter() - started
        yield Server("Java 4.9.7", f"{HOST}:{port}", process.pid, seconds)


def java_reason() -> str | None:
    """Return why the official broker cannot be run here, or None."""
    try:
        JavaToolchain.find()
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        return str(error)
    return None


def _free_port() -> int:
    """Return a port that is free together with the two below and the one above."""
    for port in _PORTS:
        with contextlib.suppress(OSError), ExitStack() as stack:
            for each in (port - 2, port, port + 1):
                stack.enter_context(socket.socket()).bind((HOST, each))
            return port
    raise RuntimeError("no free ports")
