"""The bytes of replication: what a slave reports to its master, and what the master transfers.

Neither direction is framed as remoting is.  A slave sends reports, each a bare log offset:

    at  size  field   meaning
     0     8  offset  where the slave's log ends; the first one asks where to begin

A master sends transfers.  One without bytes is a heartbeat, and tells where the next one begins:

    at  size  field   meaning
     0     8  offset  where in the log the bytes belong
     8     4  size    how many bytes of the log follow

All numbers are big-endian and signed.  A transfer never crosses a file of the log.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flintmq.format.wire.remoting_errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

_REPORT: Final = struct.Struct(">q")
_TRANSFER: Final = struct.Struct(
    ">"
    "q"  # offset
    "i"  # size
)
REPORT_SIZE: Final = _REPORT.size
TRANSFER_HEADER_SIZE: Final = _TRANSFER.size

TRANSFER_SIZE_MAX: Final = (4 << 20) - TRANSFER_HEADER_SIZE
"""Bytes of one transfer: a Java slave reads it into a buffer of 4 MiB, header included."""


def encode_report(offset: int) -> bytes:
    """Return the report that a log ends at ``offset``."""
    return _REPORT.pack(offset)


def encode_transfer_header(offset: int, size: int) -> bytes:
    """Return what precedes ``size`` bytes of the log at ``offset``."""
    return _TRANSFER.pack(offset, size)


class ReportDecoder:
    """Turns received chunks into reports.  It keeps less than one report."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes | bytearray | memoryview) -> list[int]:
        """Return the reports that are whole now, in their order."""
        data = self._rest + bytes(chunk)
        whole = len(data) - len(data) % REPORT_SIZE
        self._rest = data[whole:]
        offsets = [offset for (offset,) in _REPORT.iter_unpack(data[:whole])]
        if offsets and min(offsets) < 0:
            raise RemoteProtocolError(f"a slave reports the offset {min(offsets)}")
        return offsets


class TransferDecoder:
    """Turns received chunks into pieces of the log.  It keeps less than one header.

    A transfer that comes in several chunks gives several pieces: the log is one stream of bytes,
    and nobody has to wait for the end of a transfer.
    """

    def __init__(self) -> None:
        self._header = b""
        self._offset = 0
        self._left = 0

    def feed(self, chunk: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield offset and bytes of each piece; a heartbeat has no bytes.

        Raises RemoteProtocolError for what no master sends.
        """
        at = 0
        while at < len(chunk):
            if not self._left:
                missing = TRANSFER_HEADER_SIZE - len(self._header)
                self._header += bytes(chunk[at : at + missing])
                at = min(at + missing, len(chunk))
                if len(self._header) < TRANSFER_HEADER_SIZE:
                    return
                self._offset, self._left = _TRANSFER.unpack(self._header)
                self._header = b""
                if self._offset < 0 or not 0 <= self._left <= TRANSFER_SIZE_MAX:
                    raise RemoteProtocolError(
                        f"a transfer of {self._left} bytes at the offset {self._offset}"
                    )
                if not self._left:
                    yield self._offset, chunk[at:at]
                continue
            piece = chunk[at : at + self._left]
            offset = self._offset
            at += len(piece)
            self._offset += len(piece)
            self._left -= len(piece)
            yield offset, piece
