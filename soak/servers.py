"""The servers of a run: a name server and a broker, each ``flintmq`` command a process."""

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 60
_LOOK_AGAIN_S: Final = 0.05


class ServerError(Exception):
    """A server did not start or stop as it should."""


class Server:
    """One command that runs until it is stopped, and that can be started again on its port."""

    def __init__(self, name: str, work: Path, port: int) -> None:
        self.name = name
        self.port = port
        self._work = work
        self._process: subprocess.Popen[bytes] | None = None
        self.logs: list[Path] = []
        """What it has written, one file for each start."""
        self.start_seconds: list[float] = []

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return None if self._process is None else self._process.pid

    def start(self, *arguments: str) -> None:
        """Start, and wait until clients can connect."""
        log = self._work / f"{self.name}-{len(self.logs)}.log"
        self.logs.append(log)
        began = time.monotonic()
        command = [sys.executable, "-m", "flintmq", self.name, *arguments]
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        while b"boot success" not in log.read_bytes():
            if self._process.poll() is not None:
                text = log.read_text("utf-8", "replace")[-2000:]
                self._process = None
                raise ServerError(f"{self.name} did not start:\n{text}")
            if time.monotonic() - began > START_TIMEOUT_S:
                raise ServerError(f"{self.name} took longer than {START_TIMEOUT_S} s to start")
            time.sleep(_LOOK_AGAIN_S)
        self.start_seconds.append(time.monotonic() - began)

    def signal(self, number: int) -> None:
        """Send a signal to the process, if there is one."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End the process by SIGKILL: nothing of its own runs any more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Ask the process to end; ServerError if it does not, or not well."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(f"{self.name} did not stop in {STOP_TIMEOUT_S} s") from None
        self._process = None
        if code != 0:
            raise ServerError(f"{self.name} ended with {code}")

    @property
    def has_died(self) -> bool:
        """Whether the process has ended by itself."""
        return self._process is not None and self._process.poll() is not None


class Servers:
    """A name server and a broker.  The flush mode of the broker changes with each start."""

    def __init__(self, work: Path, store: Path, settings: Mapping[str, object]) -> None:
        self.namesrv = Server("namesrv", work, _free_port())
        self.broker = Server("broker", work, _free_port())
        self._properties = work / "broker.properties"
        everything = {
            "brokerName": BROKER_NAME,
            "storePathRootDir": store,
            "listenPort": self.broker.port,
            "namesrvAddr": self.namesrv.address,
            **settings,
        }
        lines = [f"{key}={value}\n" for key, value in everything.items()]
        self._properties.write_text("".join(lines))
        self._is_sync = False
        self.flush_mode = ""

    def start_namesrv(self) -> None:
        """Start the name server."""
        self.namesrv.start("--set", f"listenPort={self.namesrv.port}")

    def start_broker(self) -> None:
        """Start the broker with the other flush mode than the last time."""
        self.flush_mode = "SYNC_FLUSH" if self._is_sync else "ASYNC_FLUSH"
        self._is_sync = not self._is_sync
        self.broker.start("-c", str(self._properties), "--set", f"flushDiskType={self.flush_mode}")

    def close(self) -> None:
        """Leave no process behind."""
        for server in (self.broker, self.namesrv):
            server.signal(signal.SIGCONT)
            with contextlib.suppress(ServerError):
                server.stop()
            server.kill()


BROKER_NAME: Final = "broker-soak"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        port: int = found.getsockname()[1]
        return port
