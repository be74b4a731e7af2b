"""Where two logs part: the own one is compared with that of a master, over its stream.

The stream of a master can begin anywhere, so it serves to look at single places as well.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.broker.failover.name_server_look import FailoverError
from flintmq.broker.replication.master_link import WHOLE_LOG, MasterRange
from flintmq.format.host import parse_address
from flintmq.format.stored.record import Blank, check_record
from flintmq.format.wire.ha_stream import TransferDecoder, encode_report

if TYPE_CHECKING:
    from flintmq.remoting.tls_files import WatchedContext
    from flintmq.store.log.commit_log import CommitLog

WINDOW_SIZE: Final = 64 << 10
"""Bytes that are compared at one place."""
STEP_FACTOR: Final = 4
SCAN_SIZE: Final = 1 << 20
TIMEOUT_S: Final = 15
"""A Java master that has nothing to send gives its first sign of life after five seconds."""
CHUNK_SIZE: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class MasterStream:
    """The replication port of a master, of which single places are read."""

    address: str
    tls: WatchedContext | None = None

    async def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes of a master's log, fewer if it ends before.

        Raises FailoverError if the master does not answer.
        """
        offset = max(offset, WHOLE_LOG)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                host, port = parse_address(self.address)
                context = None if self.tls is None else await self.tls.current()
                reader, writer = await asyncio.open_connection(
                    host, port, ssl=context, server_hostname=None if context is None else host
                )
                try:
                    writer.write(encode_report(offset))
                    return await self._received(reader, offset, size)
                finally:
                    # Nobody waits for a farewell of TLS.
                    writer.transport.abort()
        except (OSError, TimeoutError) as error:
            raise FailoverError(
                f"{self.address} does not stream its log: {error or 'no answer'}"
            ) from error

    async def _received(self, reader: asyncio.StreamReader, begin: int, size: int) -> bytes:
        found = bytearray()
        decoder = TransferDecoder()
        while len(found) < size:
            chunk = await reader.read(CHUNK_SIZE)
            if not chunk:
                raise FailoverError(f"{self.address} refuses to stream from {begin}")
            for at, piece in decoder.feed(memoryview(chunk)):
                if at != begin + len(found):
                    raise FailoverError(f"{self.address} streams from {at} instead of {begin}")
                if not piece and found:
                    return bytes(found)
                found += piece
        return bytes(found[:size])


async def common_end(log: CommitLog, master: MasterRange, stream: MasterStream) -> int:
    """Return where the own log and that of a master part, at the end of a record of the own."""
    start = max(log.min_offset, master.start)
    limit = min(log.end_offset, master.end)
    if limit <= start:
        return limit if limit == log.end_offset else log.min_offset
    # Back in growing steps to a place where both are the same, then forward from there.
    same_end, size = start, 0
    while same_end == start:
        begin = max(start, limit - size - WINDOW_SIZE)
        end = min(begin + WINDOW_SIZE, limit)
        if await _first_difference(log, stream, begin, end) is None:
            same_end = end
        elif begin == start:
            break
        size = max(size * STEP_FACTOR, WINDOW_SIZE)
    while same_end < limit:
        stop = min(same_end + SCAN_SIZE, limit)
        different = await _first_difference(log, stream, same_end, stop)
        if different is not None:
            return _record_end(log, different)
        same_end = stop
    return _record_end(log, limit)


async def _first_difference(
    log: CommitLog, stream: MasterStream, begin: int, end: int
) -> int | None:
    """Return the first offset in a range at which the logs differ."""
    own_begin = max(begin, WHOLE_LOG)
    theirs = await stream.read(own_begin, end - own_begin)
    ours = read_own(log, own_begin, end - own_begin)
    if theirs == ours:
        return None
    pairs = zip(theirs, ours, strict=False)
    at = next((number for number, (one, other) in enumerate(pairs) if one != other), None)
    return own_begin + (min(len(theirs), len(ours)) if at is None else at)


def read_own(log: CommitLog, offset: int, size: int) -> bytes:
    """Return bytes of the own log, which may lie in several files."""
    found = bytearray()
    while len(found) < size:
        part = log.read_range(offset + len(found), size - len(found))
        if part is None:
            break
        with part:
            found += part.view
    return bytes(found)


def _record_end(log: CommitLog, offset: int) -> int:
    """Return the end of the last record that ends at or before ``offset``."""
    file = log.files.find(offset) or log.files.last
    assert file is not None, "an empty log has no difference"
    at = file.first_offset
    while at < min(offset, file.first_offset + file.wrote):
        record = check_record(
            file.view, at - file.first_offset, file.size, check_crc=False, expected_offset=at
        )
        following = file.end_offset if isinstance(record, Blank) else at + record.size
        if following > offset:
            break
        at = following
    return at
