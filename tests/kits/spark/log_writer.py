"""Writes a log record by record, and harms it as power losses and retention do.

It is quicker than a broker's store, and does to the files what no store would do on request.
"""

import shutil
from pathlib import Path
from typing import NamedTuple

from flintmq.format.stored.record_encoding import encode_blank, encode_record
from flintmq.format.stored.record_layout import BLANK_SIZE
from tests.kits.store.offline_stores import HOST, START_MS

LOG_FILE_SIZE = 2048


class WrittenRecord(NamedTuple):
    physical_offset: int
    end: int
    topic: str
    key: str


class LogWriter:
    """A store directory that has a log and nothing else."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.records: list[WrittenRecord] = []
        """All records since the log began, the expired ones too, without those that were cut."""
        self._directory = root / "commitlog"
        self._directory.mkdir(parents=True)
        self._end = 0
        self._now = START_MS
        self._count = 0

    @property
    def expired_count(self) -> int:
        """How many records at the beginning are in no file any more."""
        return sum(record.physical_offset < self.start for record in self.records)

    @property
    def start(self) -> int:
        """Where the first file begins."""
        return min((int(path.name) for path in self._files()), default=0)

    def append(self, topic: str, body_size: int) -> None:
        """Write a record at the end; its key is a number that no other has."""
        self._count += 1
        self._now += 1
        key = f"key-{self._count}"
        size = len(self._encoded(topic, key, body_size, 0))
        at = self._end % LOG_FILE_SIZE
        if at + size + BLANK_SIZE > LOG_FILE_SIZE:
            self._write(self._end, encode_blank(LOG_FILE_SIZE - at))
            self._end += LOG_FILE_SIZE - at
        self._write(self._end, self._encoded(topic, key, body_size, self._end))
        self.records.append(WrittenRecord(self._end, self._end + size, topic, key))
        self._end += size

    def expire(self) -> None:
        """Delete the first file, if it is not the only one."""
        first, *others = self._files()
        if others:
            first.unlink()

    def cut_back(self, count: int) -> None:
        """Lose so many records at the end, as far as the log has them."""
        count = min(count, len(self.records) - self.expired_count)
        if not count:
            return
        self._now += 1000
        self._end = self.records[-count].physical_offset
        del self.records[-count:]
        for path in self._files():
            keep = self._end - int(path.name)
            if keep <= 0 and int(path.name) > 0 and path != self._files()[0]:
                path.unlink()
            elif keep < LOG_FILE_SIZE:
                data = path.read_bytes()[: max(keep, 0)]
                path.write_bytes(data.ljust(LOG_FILE_SIZE, b"\0"))

    def make_anew(self) -> None:
        """Begin another log, which has nothing of this one."""
        shutil.rmtree(self._directory)
        self._directory.mkdir()
        self.records = []
        self._end = 0
        self._now += 1000

    def move(self, root: Path) -> None:
        """Go on in another directory."""
        self.root.rename(root)
        self.root, self._directory = root, root / "commitlog"

    def _files(self) -> list[Path]:
        return sorted(self._directory.iterdir())

    def _encoded(self, topic: str, key: str, body_size: int, offset: int) -> bytes:
        properties = f"KEYS\x01{key}\x02".encode()
        return encode_record(
            topic.encode(), 0, 0, 0, offset, 0, START_MS, HOST, self._now, HOST, 0, 0,
            bytes(body_size), properties,
        )  # fmt: skip

    def _write(self, offset: int, data: bytes) -> None:
        path = self._directory / f"{offset - offset % LOG_FILE_SIZE:020}"
        if not path.exists():
            path.write_bytes(bytes(LOG_FILE_SIZE))
        with path.open("r+b") as file:
            file.seek(offset % LOG_FILE_SIZE)
            file.write(data)
