"""One more broker for a cluster, in a process of its own that can be killed."""

from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kits.processes.java_process import JavaProcess as ServerProcess
from tests.kits.processes.serve_command import SMALL_FILES, command


class OtherBroker:
    """A broker; it keeps its port and its store when it is started again."""

    def __init__(self, name: str, namesrv: str, data: Path) -> None:
        self._name = name
        self._namesrv = namesrv
        self._data = data
        self._port = "0"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()

    def start(self) -> None:
        """Start, and wait until clients can connect."""
        settings = {
            **SMALL_FILES,
            "brokerName": self._name,
            "brokerIP1": "127.0.0.1",
            "listenPort": self._port,
            "storePathRootDir": self._data,
        }
        sets = (f"--set={key}={value}" for key, value in settings.items())
        self._process, line = ServerProcess.until(
            f"The broker[{self._name}, ",
            command("broker", "-n", self._namesrv, *sets),
            log=self._data.with_suffix(".log"),
        )
        self._port = line.partition("]")[0].rpartition(":")[2]

    def kill(self) -> None:
        """End the process by SIGKILL."""
        self._process.kill()
