"""The offset store of a broadcasting group: a file, ours or one that a Java client left."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flintmq.client.assigning.offset_store import NotedOffsets, RemoteOffsets
from flintmq.client.errors import ClientError, UsageError
from flintmq.client.options import ClientOptions
from flintmq.format import fastjson
from flintmq.format.errors import StateTextError
from flintmq.model.message_queue import MessageQueue
from flintmq.settings.durable_file import replace_durably

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from flintmq.client.assigning.offset_store import OffsetStore
    from flintmq.client.assigning.sharing import SharingRules
    from flintmq.client.instance import ClientInstance

logger = logging.getLogger(__name__)

FILE_SIZE_MAX: Final = 64 << 20
JAVA_NAMES: Final = ("offsets.json", "offsets.json.bak")


class LocalOffsets(NotedOffsets):
    """Offsets of a broadcasting group, kept in a file of this client.

    A Java client of the same id keeps ``offsets.json`` beside it.  While we have no file of our
    own, that one is read, or its backup; it is never written.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._written: dict[MessageQueue, int] = {}

    async def load(self) -> None:
        """Read our file, or Java's; without either there are no offsets."""
        content = _content(self._path)
        if content is not None:
            self._offsets = _parsed(self._path, content, _our_rows)
            self._written = dict(self._offsets)
            return
        for name in JAVA_NAMES:
            path = self._path.with_name(name)
            content = _content(path)
            if content is None:
                continue
            try:
                self._offsets = _parsed(path, content, _java_rows)
            except UsageError:
                if name == JAVA_NAMES[-1]:
                    raise
                logger.warning("offsets of a Java client not read: file=%s", path)
            else:
                logger.info("offsets of a Java client read: file=%s", path)
                return

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the offset from the file, or the one noted since."""
        return self._offsets.get(queue)

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Write the file, with all queues ever consumed from, if an offset has moved."""
        try:
            self._write()
        except OSError as error:
            logger.warning("offsets not written: file=%s reason=%s", self._path, error)

    def _write(self) -> None:
        if self._offsets == self._written:
            return
        rows = [
            {
                "topic": queue.topic,
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "offset": offset,
            }
            for queue, offset in sorted(self._offsets.items())
        ]
        replace_durably(self._path, json.dumps({"offsets": rows}, indent=1).encode())
        self._written = dict(self._offsets)

    async def commit(
        self, queue: MessageQueue, offset: int, *, increase_only: bool = False
    ) -> None:
        """Note one offset and write the file."""
        self.update(queue, offset, increase_only=increase_only)
        try:
            self._write()
        except OSError as error:
            raise ClientError(f"offsets not written to {self._path}: {error}") from error

    def forget(self, queue: MessageQueue) -> None:
        """Keep the offset: no broker has a copy of it."""


def _content(path: Path) -> bytes | None:
    """Return what is in a file; None if there is none."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_SIZE_MAX + 1)
    except FileNotFoundError:
        return None
    if len(content) > FILE_SIZE_MAX:
        raise UsageError(f"{path} has more than {FILE_SIZE_MAX} bytes")
    return content


def _parsed(
    path: Path, content: bytes, rows: Callable[[str], Iterator[tuple[Any, Any]]]
) -> dict[MessageQueue, int]:
    try:
        return {
            MessageQueue(row["topic"], row["brokerName"], int(row["queueId"])): int(offset)
            for row, offset in rows(content.decode())
        }
    except (ValueError, KeyError, TypeError, StateTextError) as error:
        raise UsageError(f"{path} holds no offsets: {error}") from error


def _our_rows(text: str) -> Iterator[tuple[Any, Any]]:
    for row in json.loads(text)["offsets"]:
        yield row, row["offset"]


def _java_rows(text: str) -> Iterator[tuple[Any, Any]]:
    # Its keys are objects, which no JSON has: {"offsetTable":{{"topic":…}:42}}
    for members, offset in fastjson.loads(text)["offsetTable"].items():
        yield dict(members), offset


def group_offsets(
    client: ClientInstance, group: str, rules: SharingRules, directory: Path | None
) -> OffsetStore:
    """Return where a group keeps its progress: at the brokers, or in a file if it broadcasts."""
    if rules.is_clustering:
        return RemoteOffsets(client, group, now_ms=client.now_ms)
    root = directory or Path.home() / ".rocketmq_offsets"
    return LocalOffsets(root / client.client_id / group / "flintmq-offsets.json")


def lasting_options(options: ClientOptions | None, rules: SharingRules) -> ClientOptions | None:
    """Return options by whose instance name a consumer that broadcasts finds its file again."""
    if rules.is_clustering:
        return options
    options = options or ClientOptions()
    return options if options.instance_name else replace(options, instance_name="DEFAULT")
