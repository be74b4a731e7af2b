"""``flintmq serve`` as a process of its own, as clients meet it."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.kits.processes.java_process import JavaProcess as ServerProcess
from tests.kits.processes.serve_command import READY, Ready, command, serve_arguments

HOST: Final = "127.0.0.1"
SMALL_FILES: Final = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": "200000",
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
}


class Serving:
    """A name server and a broker; both keep their ports when they are started again."""

    def __init__(
        self, data: Path, settings: Mapping[str, object] | None = None, *, log_level: str = "info"
    ) -> None:
        self.data = data
        self.namesrv = ""
        self.broker = ""
        self._settings = {**SMALL_FILES, **(settings or {})}
        self._log_level = log_level
        self._starts = 0

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

    @property
    def log(self) -> Path:
        """What the process has written since its last start."""
        return self.data.parent / f"{self.data.name}-{self._starts}.log"

    def start(self) -> None:
        """Start, and wait until clients can connect."""
        self._starts += 1
        self._process, line = ServerProcess.until(READY, self._command(), log=self.log)
        self.namesrv, (self.broker,) = Ready.parse(line)

    def kill(self) -> None:
        """End the process by SIGKILL: nothing of its own runs any more."""
        self._process.kill()

    def _command(self) -> list[str]:
        more = ("--host", HOST, "--log-level", self._log_level)
        return command(
            *serve_arguments(
                self.data,
                *more,
                settings=self._settings,
                namesrv=self.namesrv,
                broker=self.broker,
            )
        )
