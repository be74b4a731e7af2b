"""The official Java clients of a run: one producer and one consumer, each a process."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from soak.measures import Measures
from soak.oracle import MessageId, Oracle, Place, Queue
from soak.topics import FOLLOWED, JAVA, PLAIN
from tests.kits.processes.java_clients import HEAP_FLAGS, HURRY_FLAGS, find_clients
from tests.kits.processes.java_toolchain import JavaToolchain

VERSION: Final = "4.9.8"
_LINE_SIZE_MAX: Final = 4 << 20


class JavaMissingError(Exception):
    """Java, Maven or the jars of the clients cannot be had."""


def find_java() -> JavaToolchain:
    """Return Java with the programs of a run compiled; JavaMissingError if there is none."""
    try:
        return find_clients(VERSION)
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        raise JavaMissingError(str(error)) from error


class JavaPeer:
    """A Java process that tells what it does, one JSON object a line."""

    def __init__(self, role: str, oracle: Oracle, measures: Measures) -> None:
        self.role = role
        self._oracle = oracle
        self._measures = measures
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, toolchain: JavaToolchain, home: Path, namesrv: str) -> None:
        """Start, and listen until the process ends."""
        flags = (f"-Duser.home={home}", *HEAP_FLAGS, *HURRY_FLAGS)
        topics = [PLAIN] if self.role == "producer" else list(FOLLOWED)
        command = toolchain.command("Soak", namesrv, self.role, *topics, flags=flags)
        with (home / f"{self.role}.err").open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"HOME": str(home)},
                limit=_LINE_SIZE_MAX,
            )
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.startswith(b"{"):
                self._hear(json.loads(line))
        code = await self._process.wait()
        if code != 0:
            self._oracle.broken("Java client that failed", f"{self.role} ended with {code}")

    def _hear(self, line: dict[str, Any]) -> None:
        match line["kind"]:
            case "sending":
                self._oracle.sending(MessageId.parse(line["id"]), PLAIN)
            case "acknowledged":
                place = Place(Queue(PLAIN, line["queueId"]), line["queueOffset"])
                self._oracle.acknowledged(MessageId.parse(line["id"]), place)
                self._measures.sent(JAVA, line["micros"] / 1e6)
            case "failed":
                self._oracle.failed(MessageId.parse(line["id"]))
                self._measures.send_failed(JAVA)
            case "got":
                for one in line["ids"]:
                    self._oracle.delivered(JAVA, MessageId.parse(one))

    def end_input(self) -> None:
        """Let the process find the end of its input: it ends then."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        """Leave nothing behind."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
