"""A store of many messages, written without a broker: millions of records a second.

    python -m bench.generate_store DIRECTORY --messages 10000000

All records have one size, so the place of each, its unit and its index entries follow from its
number alone, and whole columns of bytes are filled at once.  What a broker would have derived
from the log is computed here from the numbers, not read from the log: a tool that derives it
anew has something to be compared with.
"""

import argparse
import datetime
import json
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from flintmq.format.host import pack_host
from flintmq.format.java import string_hash
from flintmq.format.stored.checkpoint import Checkpoint, encode_checkpoint
from flintmq.format.stored.index_file import IndexHeader, file_size, format_file_name
from flintmq.format.stored.record_encoding import encode_blank, encode_record
from flintmq.format.stored.record_layout import BLANK_SIZE
from flintmq.kernels.compiled import kernel

HOST: Final = pack_host("127.0.0.1", 10911)
START_MS: Final = 1_700_000_000_000
MESSAGES_PER_MS: Final = 100
BODY_COUNT: Final = 1024
CHUNK_BYTES: Final = 16 << 20
"""Of records that are made at once."""

TAGS: Final = tuple("ABCDE")
KEY_DIGITS: Final = 10
ID_DIGITS: Final = 12
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Texts = npt.NDArray[np.uint8]

_UNIT: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
_ENTRY: Final = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("prev", ">i4")])


@dataclass(frozen=True, kw_only=True)
class StoreShape:
    """How many messages there are, how they are spread, and the sizes of the files."""

    messages: int
    body_size: int = 128
    topic_count: int = 4
    queue_count: int = 8
    log_file_size: int = 1 << 30
    queue_file_size: int = 6_000_000
    slots: int = 5_000_000
    entries: int = 20_000_000

    @cached_property
    def topics(self) -> list[str]:
        # All names have one length, so all records have one size.
        width = len(str(self.topic_count - 1))
        return [f"BenchTopic{number:0{width}}" for number in range(self.topic_count)]

    @cached_property
    def template(self) -> bytes:
        """A record with zeros where the records differ."""
        properties = (
            f"UNIQ_KEY\x01AC11000218B400000000{'0' * ID_DIGITS}\x02KEYS\x01order-{'0' * KEY_DIGITS}"
            "\x02TAGS\x01Tag0\x02CLUSTER\x01DefaultCluster"
        )
        body, topic = bytes(self.body_size), self.topics[0].encode()
        return encode_record(
            topic, 0, 0, 0, 0, 0, START_MS, HOST, 0, HOST, 0, 0, body, properties.encode()
        )

    @property
    def per_file(self) -> int:
        # Behind the last record there is room for a blank.
        return (self.log_file_size - BLANK_SIZE) // len(self.template)

    def offsets(self, numbers: Numbers) -> Numbers:
        """Return the physical offsets of messages."""
        files, places = np.divmod(numbers, self.per_file)
        found: Numbers = files * self.log_file_size + places * len(self.template)
        return found


def _times(numbers: Numbers) -> Numbers:
    return START_MS + numbers // MESSAGES_PER_MS


def _digits(numbers: Numbers, count: int, base: int) -> Texts:
    """Return numbers as rows of digits."""
    powers = base ** np.arange(count - 1, -1, -1, dtype=np.int64)
    digits: Texts = _HEX[numbers[:, None] // powers % base]
    return digits


def _put(records: Bytes, at: int, column: Numbers, kind: str) -> None:
    wide = column.astype(kind)
    records[:, at : at + wide.itemsize] = wide.view(np.uint8).reshape(len(wide), -1)


class _LogWriter:
    """Fills the bytes in which records differ."""

    def __init__(self, shape: StoreShape) -> None:
        self._shape = shape
        self._template = np.frombuffer(shape.template, np.uint8)
        random = np.random.default_rng(1)
        letters = random.integers(97, 123, (BODY_COUNT, shape.body_size), np.uint8)
        self._bodies = letters
        self._crcs = np.array([zlib.crc32(body) & 0x7FFFFFFF for body in letters], np.int64)
        text = shape.template
        self._body_at = 88
        self._topic_at = self._body_at + shape.body_size + 1
        self._id_at = text.index(b"UNIQ_KEY") + 29
        self._key_at = text.index(b"KEYS\x01order-") + 11
        self._tag_at = text.index(b"TAGS\x01Tag") + 8

    def records(self, numbers: Numbers) -> Bytes:
        shape = self._shape
        made = np.empty((len(numbers), len(shape.template)), np.uint8)
        made[:] = self._template
        bodies = numbers % BODY_COUNT
        topics, queues, queue_offsets = _queue_of(shape, numbers)
        _put(made, 8, self._crcs[bodies], ">i4")
        _put(made, 12, queues, ">i4")
        _put(made, 20, queue_offsets, ">i8")
        _put(made, 28, shape.offsets(numbers), ">i8")
        _put(made, 56, _times(numbers), ">i8")
        made[:, self._body_at : self._body_at + shape.body_size] = self._bodies[bodies]
        names = np.array([list(topic.encode()) for topic in shape.topics], np.uint8)
        made[:, self._topic_at : self._topic_at + names.shape[1]] = names[topics]
        made[:, self._id_at : self._id_at + ID_DIGITS] = _digits(numbers, ID_DIGITS, 16)
        made[:, self._key_at : self._key_at + KEY_DIGITS] = _digits(numbers, KEY_DIGITS, 10)
        made[:, self._tag_at] = _tag_letters(numbers)
        return made


def _queue_of(shape: StoreShape, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return topic, queue and queue offset of messages, which take turns."""
    turns, topics = np.divmod(numbers, shape.topic_count)
    queue_offsets, queues = np.divmod(turns, shape.queue_count)
    return topics, queues, queue_offsets


def _tag_letters(numbers: Numbers) -> Bytes:
    return np.array([ord(tag) for tag in TAGS], np.uint8)[numbers % len(TAGS)]


def _chunks(start: int, stop: int, step: int) -> Iterator[Numbers]:
    for first in range(start, stop, step):
        yield np.arange(first, min(first + step, stop), dtype=np.int64)


def _write_log(root: Path, shape: StoreShape) -> None:
    directory = root / "commitlog"
    directory.mkdir()
    writer = _LogWriter(shape)
    for number, first in enumerate(range(0, shape.messages, shape.per_file)):
        last = min(first + shape.per_file, shape.messages)
        with (directory / f"{number * shape.log_file_size:020}").open("wb") as file:
            for numbers in _chunks(first, last, max(CHUNK_BYTES // len(shape.template), 1)):
                file.write(writer.records(numbers).data)
            left = shape.log_file_size - file.tell()
            if last == first + shape.per_file and last < shape.messages:
                file.write(encode_blank(left))
            file.truncate(shape.log_file_size)


def _write_queues(root: Path, shape: StoreShape) -> None:
    codes = np.array([string_hash(f"Tag{tag}") for tag in TAGS], np.int64)
    per_file = shape.queue_file_size // _UNIT.itemsize
    step = shape.topic_count * shape.queue_count
    for place in range(min(step, shape.messages)):
        topic, queue = place % shape.topic_count, place // shape.topic_count
        directory = root / "consumequeue" / shape.topics[topic] / str(queue)
        directory.mkdir(parents=True)
        numbers = np.arange(place, shape.messages, step, dtype=np.int64)
        for start in range(0, len(numbers), per_file):
            some = numbers[start : start + per_file]
            units = np.empty(len(some), _UNIT)
            units["offset"] = shape.offsets(some)
            units["size"] = len(shape.template)
            units["code"] = codes[some % len(TAGS)]
            with (directory / f"{start * _UNIT.itemsize:020}").open("wb") as file:
                file.write(units.data)
                file.truncate(shape.queue_file_size)


def _hash_texts(start_hashes: npt.NDArray[np.uint32], texts: Texts) -> npt.NDArray[np.uint32]:
    hashes = start_hashes.copy()
    for column in texts.T:
        hashes *= np.uint32(31)
        hashes += column
    return hashes


def _key_hashes(shape: StoreShape, numbers: Numbers) -> npt.NDArray[np.int32]:
    """Return the hashes of both keys of messages, one after the other."""
    topics = numbers % shape.topic_count
    found = np.empty((len(numbers), 2), np.int32)
    for column, start, digits in (
        (0, "AC11000218B400000000", _digits(numbers, ID_DIGITS, 16)),
        (1, "order-", _digits(numbers, KEY_DIGITS, 10)),
    ):
        starts = [string_hash(f"{topic}#{start}") & 0xFFFFFFFF for topic in shape.topics]
        hashes = _hash_texts(np.array(starts, np.uint32)[topics], digits).astype(np.int32)
        # The lowest number has no absolute value, and counts as zero.
        found[:, column] = np.where(hashes == np.iinfo(np.int32).min, 0, np.abs(hashes))
    return found.reshape(-1)


@kernel
def _chain(
    hashes: npt.NDArray[np.int32], slots: npt.NDArray[np.int32], previous: npt.NDArray[np.int32]
) -> int:
    """Put entries into slots; return how many slots were empty before."""
    used = 0
    for row in range(len(hashes)):
        slot = hashes[row] % len(slots)
        previous[row] = slots[slot]
        used += slots[slot] == 0
        slots[slot] = row + 1
    return used


def _write_index(root: Path, shape: StoreShape) -> int:
    """Write the index files; return the store time up to which full ones reach."""
    directory = root / "index"
    directory.mkdir()
    per_file = shape.entries - 1
    flushed = 0
    for first in range(0, shape.messages * 2, per_file):
        places = np.arange(first, min(first + per_file, shape.messages * 2), dtype=np.int64)
        numbers = places // 2
        chunks = _chunks(int(numbers[0]), int(numbers[-1]) + 1, 1 << 20)
        hashes = np.concatenate([_key_hashes(shape, chunk) for chunk in chunks])
        hashes = hashes[first % 2 :][: len(places)]
        slots = np.zeros(shape.slots, np.int32)
        entries = np.zeros(len(places) + 1, _ENTRY)
        previous = np.empty(len(places), np.int32)
        used = _chain(hashes, slots, previous)
        times = _times(numbers)
        written = entries[1:]
        written["hash"], written["offset"] = hashes, shape.offsets(numbers)
        written["seconds"], written["prev"] = (times - times[0]) // 1000, previous
        begin, end = int(written["offset"][0]), int(written["offset"][-1])
        header = IndexHeader(int(times[0]), int(times[-1]), begin, end, used, len(entries))
        moment = datetime.datetime.fromtimestamp(int(times[0]) / 1000, datetime.UTC)
        with (directory / format_file_name(moment)).open("wb") as file:
            file.write(header.pack())
            file.write(slots.astype(">i4").data)
            file.write(entries.data)
            file.truncate(file_size(shape.slots, shape.entries))
        if len(places) == per_file:
            flushed = int(times[-1])
    return flushed


def _write_state(root: Path, shape: StoreShape, index_time: int) -> None:
    last = int(_times(np.array([shape.messages - 1]))[0])
    checkpoint = Checkpoint(physic=last, logics=last, index=index_time)
    (root / "checkpoint").write_bytes(encode_checkpoint(checkpoint))
    table = {
        topic: {
            "order": False,
            "perm": 6,
            "readQueueNums": shape.queue_count,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": shape.queue_count,
        }
        for topic in shape.topics
    }
    version = {"counter": 1, "timestamp": START_MS}
    (root / "config").mkdir()
    text = json.dumps({"dataVersion": version, "topicConfigTable": table}, indent=1)
    (root / "config" / "topics.json").write_text(text)


def generate(root: Path, shape: StoreShape) -> None:
    """Write a store to a directory that does not exist yet."""
    root.mkdir(parents=True)
    _write_log(root, shape)
    _write_queues(root, shape)
    _write_state(root, shape, _write_index(root, shape))


def main() -> None:
    """Write a store as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--messages", type=int, default=10_000_000)
    options = parser.parse_args()
    start = time.perf_counter()
    generate(options.directory, StoreShape(messages=options.messages))
    seconds = time.perf_counter() - start
    print(f"{options.messages:,} messages in {seconds:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
