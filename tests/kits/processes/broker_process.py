"""Single brokers as processes, ours and Java's, that join a name server which is there already."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.kits.processes.java_cluster import HOST, JavaCluster, free_ports
from tests.kits.processes.java_process import JavaProcess
from tests.kits.processes.java_toolchain import JavaToolchain
from tests.kits.processes.serve_command import command
from tests.kits.processes.serving import SMALL_FILES

BOOTED: Final = "boot success"
SLAVE: Final = {"brokerRole": "SLAVE", "brokerId": "1"}


class _OurServer(ABC):
    """A server of ours as a process, which runs as long as the context."""

    _process: JavaProcess

    @abstractmethod
    def start(self) -> None:
        """Start, and wait until it can be used."""

    def stop(self) -> None:
        """Stop cleanly."""
        self._process.stop()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.stop()


class OurNamesrv(_OurServer):
    """``flintmq namesrv``; it keeps its port when it is started again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._starts = 0
        self.address = f"{HOST}:{free_ports()[1]}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        self._root.mkdir(parents=True, exist_ok=True)
        self._starts += 1
        port = self.address.rpartition(":")[2]
        settings = {"listenPort": port, "kvConfigPath": self._root / "kv.json"}
        arguments = [text for key in settings for text in ("--set", f"{key}={settings[key]}")]
        self._process, _ = JavaProcess.until(
            BOOTED, command("namesrv", *arguments), log=self._root / f"namesrv-{self._starts}.log"
        )


class OurBroker(_OurServer):
    """``flintmq broker``; it keeps its port when it is started again."""

    def __init__(self, root: Path, namesrv: str, settings: Mapping[str, object]) -> None:
        self.root = root
        self.store = root / "store"
        self._namesrv = namesrv
        self._settings = settings
        self._starts = 0
        _, self.port = free_ports()

    @property
    def log(self) -> Path:
        """What the process has written since its last start."""
        return self.root / f"broker-{self._starts}.log"

    def start(self) -> None:
        """Start, and wait until it is registered."""
        self.root.mkdir(parents=True, exist_ok=True)
        self._starts += 1
        settings = {
            **SMALL_FILES,
            "brokerName": "broker-a",
            "listenPort": self.port,
            "storePathRootDir": self.store,
            **self._settings,
        }
        arguments = [text for key in settings for text in ("--set", f"{key}={settings[key]}")]
        self._process, _ = JavaProcess.until(
            BOOTED, command("broker", "-n", self._namesrv, *arguments), log=self.log
        )

    def kill(self) -> None:
        """End the process by SIGKILL."""
        self._process.kill()


class JavaBroker(JavaCluster):
    """A Java broker without a name server of its own."""

    def __init__(
        self,
        store: Path,
        namesrv: str,
        config: Mapping[str, object],
        *,
        work_directory: Path,
        toolchain: JavaToolchain,
    ) -> None:
        super().__init__(store, config, work_directory=work_directory, toolchain=toolchain)
        self.namesrv_port = int(namesrv.rpartition(":")[2])

    def _start(self, stack: ExitStack) -> None:
        _, self.broker_port = free_ports()
        self._start_broker(stack)


def log_content(store: Path) -> bytes:
    """Return the log of a store, file by file, without the zeros at its end."""
    files = sorted((store / "commitlog").glob("[0-9]*"))
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


def wait_for_same_logs(one: Path, other: Path, *, timeout_s: float = 60) -> bytes:
    """Wait until two stores have the same log, and return it."""
    deadline = time.monotonic() + timeout_s
    while (content := log_content(one)) != log_content(other) or not content:
        if time.monotonic() > deadline:
            sizes = len(content), len(log_content(other))
            raise TimeoutError(f"logs of {sizes} bytes differ after {timeout_s} s")
        time.sleep(0.1)
    return content
