"""Signs of a torn write that the checksum of a record cannot show.

The checksum covers the body alone.  When the power fails while a page is written, words behind
the body may still be zeros, as the file was before, while every length of the record is there
and adds up.  Memory and disks never tear a word, so a torn record has a word of zeros that lies
in it or reaches out of it; no property text has one, and no topic has a zero byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.format.stored.record_layout import (
    BODY_CRC_AT,
    MESSAGE_MAGIC,
    PHYSICAL_OFFSET_AT,
    SYS_FLAG_AT,
)
from flintmq.format.sys_flag import host_sizes

if TYPE_CHECKING:
    from flintmq.format.stored.record import CheckedRecord

WORD_SIZE: Final = 8

_MAGIC: Final = MESSAGE_MAGIC.to_bytes(4, "big", signed=True)


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


def lacks_words(view: memoryview, start: int, end: int, base: int) -> bool:
    """Whether damage from ``start`` to ``end`` of a file may come from words that never arrived.

    A torn write leaves words of zeros and changes nothing else.  Numbers in the header of a
    record that was damaged behind it are zero by right, so those words do not count.
    """
    by_right = _zeros_by_right(view, start, end, base)
    aligned = start - start % WORD_SIZE
    text = bytes(view[aligned : min(-(-end // WORD_SIZE) * WORD_SIZE, len(view))])
    at = text.find(bytes(WORD_SIZE))
    while at >= 0:
        word = at + -at % WORD_SIZE
        if not any(text[word : word + WORD_SIZE]) and not any(
            low <= aligned + word and aligned + word + WORD_SIZE <= high for low, high in by_right
        ):
            return True
        at = text.find(bytes(WORD_SIZE), word + 1)
    return False


def _zeros_by_right(view: memoryview, start: int, end: int, base: int) -> list[tuple[int, int]]:
    """Return where the header of the record at ``start`` may hold zeros, if there is a header."""
    if end - start < SYS_FLAG_AT + 4 or view[start + 4 : start + 8] != _MAGIC:
        return []
    claimed = int.from_bytes(view[start + PHYSICAL_OFFSET_AT : start + SYS_FLAG_AT], "big")
    if claimed != base + start:
        return []
    sys_flag = int.from_bytes(view[start + SYS_FLAG_AT : start + SYS_FLAG_AT + 4], "big")
    counters_at = start + 56 + sum(host_sizes(sys_flag))
    return [(start + BODY_CRC_AT, start + SYS_FLAG_AT + 4), (counters_at, counters_at + 16)]
