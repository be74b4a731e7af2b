"""The connection of one slave: it gets the log as it grows, and tells how far it has it.

The log goes from its mapped pages to the socket: the kernel copies it, and nothing in between.
Each slave gets a bounded slice in a turn of the loop.  What is not in memory is loaded by a
thread first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.broker.replication.errors import ReplicationError
from flintmq.broker.replication.slave_link import SlaveLink
from flintmq.format.wire.ha_stream import TRANSFER_SIZE_MAX, encode_transfer_header
from flintmq.format.wire.remoting_errors import RemoteProtocolError
from flintmq.store.reading.cold_reads import RECENT_SIZE, ColdRange

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from flintmq.broker.replication.slave_table import SlaveTable
    from flintmq.broker.replication.tls_stream import TlsStream
    from flintmq.broker.waiting.cold_loads import ColdLoads
    from flintmq.store.files.mapped_file import Slice
    from flintmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

SLICE_SIZE: Final = 1 << 20
"""Bytes of the log that one slave is sent before others have their turn."""
TRANSFER_COUNT_MAX: Final = 64
"""Transfers that are handed to the kernel together."""
REPORTS_SIZE: Final = 64 << 10


class SlaveOwner(Protocol):
    """The server that a slave is connected to, as its connection sees it."""

    store: MessageStore
    slaves: SlaveTable
    cold_loads: ColdLoads
    now_ms: Callable[[], int]

    def forget(self, connection: SlaveConnection) -> None:
        """Take out a connection that was closed."""
        ...


class SlaveConnection:
    """The socket of one slave."""

    def __init__(self, server: SlaveOwner, connected: socket.socket | TlsStream, peer: str) -> None:
        config = server.store.config
        self.host = peer.rpartition(":")[0]
        self._server = server
        self._transfer_size = min(config.ha_transfer_batch_size, TRANSFER_SIZE_MAX)
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self._link = SlaveLink(
            peer,
            now_ms=server.now_ms,
            heartbeat_ms=config.ha_heartbeat_interval_ms,
            silence_ms=config.ha_housekeeping_interval_ms,
        )
        server.slaves.add(self._link)
        self._unsent: deque[memoryview] = deque()
        self._held: list[Slice] = []
        """Parts of the log that the socket has not taken yet."""
        self._is_writing = False
        """Whether the loop tells when the socket takes more."""
        self._loading: asyncio.Task[None] | None = None
        self._resident_end = 0
        """Up to where the kernel has said that the log is in memory."""
        self._is_closed = False
        self._loop.add_reader(connected.fileno(), self._readable)

    # -- reports -----------------------------------------------------------------------------

    def _readable(self) -> None:
        if self._is_closed:
            return
        log, link = self._server.store.log, self._link
        try:
            chunk = self._socket.recv(REPORTS_SIZE)
            if not chunk:
                self.close("the slave has closed it")
                return
            was_streaming = link.is_streaming
            is_further = link.received(
                chunk, log_start=log.min_offset, log_end=max(log.end_offset, log.min_offset)
            )
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, RemoteProtocolError, ReplicationError) as error:
            self.close(str(error))
            return
        if link.is_streaming and not was_streaming:
            self._tell_of_request()
        if len(chunk) == REPORTS_SIZE:
            self._loop.call_soon(self._readable)  # There may be more that the loop does not see.
        if is_further:
            self._server.slaves.advanced(link)
        self.go_on()

    def _tell_of_request(self) -> None:
        link = self._link
        logger.info(
            "slave begins: peer=%s requested=%d from=%d",
            link.peer,
            link.requested,
            link.next_offset,
        )
        if link.requested is not None and 1 < link.requested < link.next_offset:
            logger.warning(
                "slave was too slow for the retention of this master: peer=%s lost=%d",
                link.peer,
                link.next_offset - link.requested,
            )

    # -- transfers ---------------------------------------------------------------------------

    def look(self) -> None:
        """Do what is due: a sign of life, or the end of a slave that gives none."""
        if self._link.is_silent:
            self.close("nothing was heard of the slave for haHousekeepingInterval")
            return
        self.go_on()
        if self._link.is_heartbeat_due and not self._unsent and not self._is_closed:
            self._unsent.append(memoryview(encode_transfer_header(self._link.next_offset, 0)))
            self._link.transferred(0)
            self._send()

    def go_on(self) -> None:
        """Send what there is to send, unless the socket is full: then the loop goes on."""
        if self._is_writing or self._is_closed or self._loading is not None:
            return
        self._fill()
        if self._unsent:
            self._send()

    def _fill(self) -> None:
        """Take the next transfers out of the log, as many as one turn allows."""
        if not self._link.is_streaming:
            return
        log, link = self._server.store.log, self._link
        size = 0
        for _ in range(TRANSFER_COUNT_MAX):
            if size >= SLICE_SIZE:
                return
            part = log.read_range(link.next_offset, self._transfer_size)
            if part is None:
                if link.is_overtaken(log.min_offset):
                    self.close("the retention of this master was faster than the slave")
                return
            if self._is_cold(part):
                return
            self._held.append(part)
            self._unsent.append(memoryview(encode_transfer_header(part.start, part.size)))
            self._unsent.append(part.view)
            link.transferred(part.size)
            size += part.size

    def _is_cold(self, part: Slice) -> bool:
        """Whether a part has to be loaded first; if so, that is begun and the part given up."""
        log = self._server.store.log
        part_end = part.start + part.size
        if part_end <= self._resident_end or part.start >= log.readable_end - RECENT_SIZE:
            return False
        file = log.files.find(part.start)
        if file is None:
            return False
        start = part.start - file.first_offset
        size = min(SLICE_SIZE, file.readable - start)
        if file.region.is_resident(start, size):
            self._resident_end = part.start + size
            return False
        part.release()
        self._loading = self._loop.create_task(
            self._load(ColdRange(file, start, size)), name="cold log for a slave"
        )
        return True

    async def _load(self, cold: ColdRange) -> None:
        asked = [[cold], []]
        try:
            await self._server.cold_loads.load(lambda: asked.pop(0))
        finally:
            self._loading = None
        self.go_on()

    def _send(self) -> None:
        try:
            sent = self._socket.sendmsg(self._unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self.close(str(error))
            return
        while sent:
            first = self._unsent[0]
            if len(first) > sent:
                self._unsent[0] = first[sent:]
                break
            sent -= len(first)
            self._unsent.popleft()
        if not self._unsent:
            self._release()
        self._write_later(is_wanted=bool(self._unsent) or self._has_more)

    @property
    def _has_more(self) -> bool:
        return (
            self._link.is_streaming
            and self._loading is None
            and self._link.next_offset < self._server.store.log.readable_end
        )

    def _write_later(self, *, is_wanted: bool) -> None:
        if is_wanted and not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._socket.fileno(), self._writable)
        elif not is_wanted and self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._socket.fileno())

    def _writable(self) -> None:
        if not self._unsent:
            self._fill()
        if self._unsent:
            self._send()
        else:
            self._write_later(is_wanted=False)

    def _release(self) -> None:
        held, self._held = self._held, []
        for part in held:
            part.release()

    def close(self, reason: str) -> None:
        """End the stream."""
        if self._is_closed:
            return
        self._is_closed = True
        logger.info("slave disconnected: peer=%s reason=%s", self._link.peer, reason)
        if self._loading is not None:
            self._loading.cancel()
        self._write_later(is_wanted=False)
        self._loop.remove_reader(self._socket.fileno())
        with contextlib.suppress(OSError):
            self._socket.close()
        self._unsent.clear()
        self._release()
        self._server.slaves.remove(self._link)
        self._server.forget(self)
