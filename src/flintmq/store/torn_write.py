"""Signs of a torn write that the checksum of a record cannot show.

The checksum covers the body alone.  When the power fails while a page is written, words behind
the body may still be zeros, as the file was before, while every length of the record is there
and adds up.  Memory and disks never tear a word, so a torn record has a word of zeros that lies
in it or reaches out of it; no property text has one, and no topic has a zero byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flintmq.format.record import CheckedRecord

WORD_SIZE: Final = 8


def is_torn(record: CheckedRecord, view: memoryview, position: int) -> bool:
    """Whether the record at ``position`` of a file lacks words behind its body."""
    if b"\0" in record.topic:
        return True
    return b"\0" in record.properties and _lacks_word(
        view, position + record.size - len(record.properties), position + record.size
    )


def _lacks_word(view: memoryview, start: int, end: int) -> bool:
    start -= start % WORD_SIZE
    text = bytes(view[start : -(-end // WORD_SIZE) * WORD_SIZE])
    words = (text[at : at + WORD_SIZE] for at in range(0, len(text), WORD_SIZE))
    return any(not any(word) for word in words)
