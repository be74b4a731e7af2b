"""What the store answers: the outcome of a put, of a read and of a key query."""

from collections.abc import Iterator
from enum import Enum
from types import TracebackType
from typing import Final, NamedTuple, Self

from flintmq.format.message_id import encode_offset_id, encode_offset_ids
from flintmq.format.stored.record_layout import IPV4
from flintmq.model.steps import Steps
from flintmq.store.files.mapped_file import MappedFile

_RECORD_SIZE: Final = IPV4.pick("size")
NAMED_COUNT_MAX: Final = 2048
"""Messages of a batch whose ids are made in one step."""


class PutStatus(Enum):
    """How a put ended.  The first four mean that the message is in the log."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGECACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    LMQ_QUEUE_COUNT_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"

    @property
    def stored(self) -> bool:
        """Whether the message is in the log under this status."""
        return self in _STORED


_STORED = frozenset(
    {
        PutStatus.PUT_OK,
        PutStatus.FLUSH_DISK_TIMEOUT,
        PutStatus.FLUSH_SLAVE_TIMEOUT,
        PutStatus.SLAVE_NOT_AVAILABLE,
    }
)


class PutResult:
    """The outcome of one put: a status, and for stored messages where they went.

    ``PUT_OK`` from ``MessageStore.put`` means appended.  Whether it is also on the disk is
    known once the store has flushed up to ``end_offset``.
    """

    __slots__ = (
        "_message_id",
        "message_count",
        "physical_offset",
        "queue_offset",
        "reason",
        "record_offsets",
        "request_count",
        "size",
        "status",
        "store_host",
        "store_timestamp",
        "wait_for_flush",
    )

    def __init__(
        self,
        status: PutStatus,
        physical_offset: int = -1,
        size: int = 0,
        queue_offset: int = -1,
        store_timestamp: int = 0,
        store_host: bytes = b"",
        wait_for_flush: bool = False,
        message_count: int = 1,
        record_offsets: tuple[int, ...] = (),
        reason: str = "",
        request_count: int = 1,
    ) -> None:
        self.status = status
        self.physical_offset = physical_offset
        self.size = size
        self.queue_offset = queue_offset
        self.store_timestamp = store_timestamp
        self.store_host = store_host
        self.wait_for_flush = wait_for_flush
        self.message_count = message_count
        self.record_offsets = record_offsets
        self.reason = reason
        self.request_count = request_count
        """How many requests have brought the messages: more than one for an append group."""
        self._message_id = ""

    def __repr__(self) -> str:
        return (
            f"PutResult({self.status.name}, physical_offset={self.physical_offset}, "
            f"queue_offset={self.queue_offset}, reason={self.reason!r})"
        )

    @property
    def ok(self) -> bool:
        """Whether the message was appended and nothing asked for has failed yet."""
        return self.status is PutStatus.PUT_OK

    @property
    def end_offset(self) -> int:
        """The log offset after the last byte of the stored message or batch."""
        return self.physical_offset + self.size

    @property
    def message_id(self) -> str:
        """The offset id clients get; the ids of a batch are joined by commas."""
        if self._message_id:
            return self._message_id
        if not self.record_offsets:
            return encode_offset_id(self.store_host, self.physical_offset)
        return encode_offset_ids(self.store_host, self.record_offsets)

    def name_messages(self) -> Steps[None]:
        """Make the ids of a large batch in steps; then `message_id` has them at once."""
        ids = []
        for start in range(0, len(self.record_offsets), NAMED_COUNT_MAX):
            some = self.record_offsets[start : start + NAMED_COUNT_MAX]
            ids.append(encode_offset_ids(self.store_host, some))
            yield
        self._message_id = ",".join(ids)

    def with_status(self, status: PutStatus, reason: str = "") -> Self:
        """Change the status of this result in place and return it."""
        self.status = status
        self.reason = reason
        return self


class GetStatus(Enum):
    """How a read of a queue ended."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class CopiedMessages(NamedTuple):
    """Messages of one queue that were copied to where the caller wanted them."""

    message_count: int
    total_size: int
    next_begin_offset: int
    min_offset: int
    max_offset: int


class GetResult:
    """Messages of one queue as views into mapped files; release it when they are sent.

    The views stay valid until ``release``; after that they must not be touched.  Use it as a
    context manager, or call ``release`` exactly when the last byte has left the process.
    """

    __slots__ = (
        "_held",
        "_messages",
        "_queue_offsets",
        "max_offset",
        "min_offset",
        "next_begin_offset",
        "pieces",
        "read_us",
        "status",
        "suggest_slave",
        "total_size",
    )

    def __init__(
        self, status: GetStatus, *, next_begin_offset: int, min_offset: int, max_offset: int
    ) -> None:
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.pieces: list[memoryview] = []
        """Whole records in the order of the queue; those that lie side by side are one piece."""
        self._queue_offsets: list[int] | range = []
        self.total_size = 0
        self.read_us = 0
        """Microseconds that the read has taken, where the store has measured them."""
        self.suggest_slave = False
        self._held: list[MappedFile] = []
        self._messages: list[memoryview] | None = None

    def hold(self, file: MappedFile) -> None:
        """Take over one reference to ``file`` that the caller has acquired."""
        self._held.append(file)

    def set_pieces(
        self, file: MappedFile, pieces: list[memoryview], count: int, total_size: int
    ) -> None:
        """Hold the next ``count`` messages, none passed over, all in a file that is held."""
        self._held.append(file)
        self.take_pieces(pieces, count, total_size)

    def take_pieces(self, pieces: list[memoryview], count: int, total_size: int) -> None:
        """Have the next ``count`` messages, none passed over, of files that are held already."""
        first = self.next_begin_offset
        self.next_begin_offset = end = first + count
        self._queue_offsets = range(first, end)
        self.pieces = pieces
        self.total_size = total_size
        self.status = GetStatus.FOUND

    def __len__(self) -> int:
        return len(self._queue_offsets)

    def __iter__(self) -> Iterator[memoryview]:
        return iter(self.messages)

    @property
    def queue_offsets(self) -> list[int]:
        """Where in the queue the messages are."""
        if isinstance(self._queue_offsets, range):
            self._queue_offsets = list(self._queue_offsets)
        return self._queue_offsets

    @property
    def messages(self) -> list[memoryview]:
        """The records one by one; who only sends them has no need to cut them apart."""
        if self._messages is None:
            self._messages = [record for piece in self.pieces for record in _records_of(piece)]
        return self._messages

    def release(self) -> None:
        """Give the files back; a second call does nothing."""
        held, self._held = self._held, []
        views, self.pieces = self.pieces, []
        if self._messages is not None:
            views += self._messages
        self._messages = []
        self._queue_offsets = []
        for view in views:
            view.release()
        for file in held:
            file.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _records_of(piece: memoryview) -> Iterator[memoryview]:
    """Yield the records of a piece, each of which begins with its size."""
    at = 0
    while at < len(piece):
        (size,) = _RECORD_SIZE.unpack_from(piece, at)
        assert size > 0, "records are checked before they become pieces"
        yield piece[at : at + size]
        at += size
