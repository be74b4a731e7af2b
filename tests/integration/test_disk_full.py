"""A store on a volume that is really full: it refuses, survives, and goes on when there is room.

Each scenario runs in a process of its own (this very file), because the mistake it looks for is
deadly: writing through a map into a hole of a file on a full disk ends the process with SIGBUS.
"""

import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from flintmq.format.host import pack_host
from flintmq.format.stored.record import decode_record
from flintmq.model.message import PutMessage
from flintmq.store.config import FlushMode, StoreConfig
from flintmq.store.errors import DiskFullError
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutResult, PutStatus
from flintmq.testing import ManualClock
from tests.kits.store.waiting_puts import put_durably

VOLUME_SIZE: Final = 8 << 20
HOST: Final = pack_host("192.0.2.1", 10911)
QUEUE_COUNT: Final = 2
REFUSALS_ENOUGH: Final = 20
FILLER_SIZE: Final = 1 << 20
ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS: Final = 120


# -- the tests -------------------------------------------------------------------------------


KINDS: Final = ("tmpfs", "ext4")


@pytest.fixture(params=KINDS)
def volume(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of eight megabytes, in memory or in a file."""
    kind = request.param
    path = tmp_path / "volume"
    path.mkdir()
    if kind == "tmpfs":
        problem = _try("mount", "-t", kind, "-o", f"size={VOLUME_SIZE}", "flintmq-test", str(path))
    else:
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(VOLUME_SIZE)
        problem = _try("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", str(image))
        problem = problem or _try("mount", "-o", "loop", str(image), str(path))
    if problem:
        reason = f"a small volume cannot be mounted, that takes root: {problem}"
        # Any root has memory to mount; not every one may use a loop device.
        if os.environ.get("CI") == "true" and kind == "tmpfs":
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def _try(*command: str) -> str:
    """Run a command and return what is wrong with it."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return f"there is no {command[0]} command"
    return (done.stderr.strip() or f"{command[0]} failed") if done.returncode else ""


def is_tmpfs(volume: Path) -> bool:
    return not volume.with_name("image").exists()


def run(scenario: str, volume: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "tests.integration.test_disk_full"]
    return subprocess.run(
        [*command, scenario, str(volume), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
        cwd=ROOT,
    )


def assert_survives(scenario: str, volume: Path, *arguments: str) -> None:
    done = run(scenario, volume, *arguments)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr}"


def test_a_hole_on_this_volume_is_deadly(volume: Path) -> None:
    """If this were not so, the tests below would prove nothing."""
    assert run("touch-a-hole", volume).returncode == -signal.SIGBUS


@pytest.mark.parametrize("flush_mode", [mode.value for mode in FlushMode])
def test_a_full_disk_refuses_keeps_everything_and_resumes(volume: Path, flush_mode: str) -> None:
    assert_survives("fill-and-resume", volume, flush_mode)


def test_writes_stop_above_the_warning_ratio_and_resume_below_it(volume: Path) -> None:
    assert_survives("warn-and-resume", volume, FlushMode.ASYNC.value)


def test_a_store_closed_on_a_full_disk_loses_nothing_it_acknowledged(
    volume: Path, tmp_path: Path
) -> None:
    journal = tmp_path / "acknowledged"
    assert_survives("fill-and-close", volume, FlushMode.ASYNC.value, str(journal))
    (volume / "filler").unlink()
    assert_survives("reopen", volume, FlushMode.ASYNC.value, str(journal))


@pytest.mark.parametrize("flush_mode", [mode.value for mode in FlushMode])
def test_a_process_killed_on_a_full_disk_loses_nothing_it_acknowledged(
    volume: Path, tmp_path: Path, flush_mode: str
) -> None:
    journal = tmp_path / "acknowledged"
    done = run("fill-and-die", volume, flush_mode, str(journal))
    assert done.returncode == -signal.SIGKILL, done.stderr
    if not is_tmpfs(volume):
        # On tmpfs even to look into a hole of a mapped file takes memory it has not.
        assert_survives("reopen-while-full", volume, flush_mode, str(journal))
    (volume / "filler").unlink()
    assert_survives("reopen", volume, flush_mode, str(journal))


# -- the scenarios ---------------------------------------------------------------------------

CLOCK: Final = ManualClock()
REMEMBERED_MS: Final = 1000
"""How long the store remembers that a file could not be made, before it tries again."""


class Sent:
    """Messages that a store has acknowledged, and where they must be found."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], list[str]] = {}
        self.offsets: dict[int, str] = {}
        self.count = 0

    def put(self, store: MessageStore, topic: str, size: int) -> PutResult:
        number = self.count
        body = f"{number}".ljust(size, "x")
        queue_id = number % QUEUE_COUNT
        result = put_durably(
            store,
            PutMessage(
                topic=topic,
                queue_id=queue_id,
                body=body.encode(),
                properties={"KEYS": f"key-{number}", "TAGS": "TagA"},
                born_host=HOST,
                store_host=HOST,
            ),
        )
        if result.ok:
            self.count += 1
            queue = self.queues.setdefault((topic, queue_id), [])
            assert result.queue_offset == len(queue)
            queue.append(body)
            self.offsets[result.physical_offset] = body
        return result

    def put_until_refused(self, store: MessageStore, topics: list[str]) -> PutResult:
        """Put messages of many sizes until nothing goes in any more; return the last refusal."""
        refusals = 0
        step = 0
        while True:
            step += 1
            result = self.put(store, topics[step % len(topics)], 40 + step * 37 % 8000)
            refusals = 0 if result.ok else refusals + 1
            if refusals == REFUSALS_ENOUGH:
                return result
            if refusals:
                CLOCK.advance(REMEMBERED_MS)

    def assert_in_log(self, store: MessageStore) -> None:
        for offset, body in self.offsets.items():
            record = store.look(offset)
            assert record is not None, offset
            assert bytes(record.body).decode() == body

    def assert_everywhere(self, store: MessageStore) -> None:
        """Assert that log, queues and index have every message, and the queues nothing else."""
        self.assert_in_log(store)
        for (topic, queue_id), bodies in self.queues.items():
            assert store.max_offset_in_queue(topic, queue_id) == len(bodies)
            found: list[str] = []
            while len(found) < len(bodies):
                result = store.get_messages(topic, queue_id, len(found), 32)
                assert result is not None
                with result:
                    assert len(result) > 0, result.status
                    found += [bytes(decode_record(view).body).decode() for view in result]
            assert found == bodies
        for number, (offset, body) in enumerate(self.offsets.items()):
            record = store.look(offset)
            assert record is not None
            hits = store.query(record.topic, f"key-{number}", 64, 0, 1 << 62)
            assert body in [bytes(decode_record(hit.view).body).decode() for hit in hits.slices]
            hits.release()

    def save(self, path: Path) -> None:
        queues = [[topic, queue_id, bodies] for (topic, queue_id), bodies in self.queues.items()]
        path.write_text(json.dumps([queues, list(self.offsets.items())]))

    @classmethod
    def load(cls, path: Path) -> "Sent":
        sent = cls()
        queues, offsets = json.loads(path.read_text())
        sent.queues = {(topic, queue_id): bodies for topic, queue_id, bodies in queues}
        sent.offsets = dict(offsets)
        sent.count = len(sent.offsets)
        return sent


def open_store(volume: Path, flush_mode: str, *, warning_ratio: float = 1.0) -> MessageStore:
    """Open a store of small files; by default only the disk itself says when it is full."""
    return MessageStore.open(
        StoreConfig(
            root=volume / "store",
            flush_mode=FlushMode(flush_mode),
            commit_log_file_size=256 << 10,
            consume_queue_file_size=4000,
            hash_slot_count=500,
            index_entry_count=1000,
            disk_warning_ratio=warning_ratio,
            disk_clean_forcibly_ratio=warning_ratio,
            clean_forcibly=False,
        ),
        clock=CLOCK,
    )


def fill_volume(volume: Path) -> Path:
    """Take every free byte of the volume."""
    filler = volume / "filler"
    chunk = bytes(1 << 16)
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(chunk)
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(chunk[:1])
    return filler


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    never = threading.Event()
    while not done():
        assert time.monotonic() < deadline, "nothing happened in time"
        CLOCK.advance(100)
        never.wait(0.01)


def fill_store(store: MessageStore, volume: Path) -> tuple[Sent, Path]:
    """Put messages, fill the volume behind the store's back, and put until nothing goes in."""
    sent = Sent()
    for number in range(300):
        assert sent.put(store, ["orders", "bills"][number % 2], 500).ok
    filler = fill_volume(volume)
    # The log has room left in its file; queues and index, old and new, have none.
    refused = sent.put_until_refused(store, ["orders", "bills", "news"])
    assert sent.count > 300
    assert refused.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert str(volume) in refused.reason
    assert "no room for 262144 bytes" in refused.reason
    sent.assert_in_log(store)
    return sent, filler


def fill_and_resume(volume: Path, flush_mode: str) -> None:
    with open_store(volume, flush_mode) as store:
        sent, filler = fill_store(store, volume)
        store.dispatch()
        assert isinstance(store.dispatcher.blocked, DiskFullError)
        assert str(volume) in str(store.dispatcher.blocked)
        before = sent.count
        filler.unlink()
        wait_until(lambda: sent.put(store, "orders", 700).ok)
        store.dispatch()
        assert store.dispatcher.blocked is None
        sent.assert_everywhere(store)
        # And once more to the brim, this time with nobody else to blame.
        filler.write_bytes(bytes(FILLER_SIZE))
        refused = sent.put_until_refused(store, ["orders", "bills", "news", "more"])
        assert str(volume) in refused.reason
        assert sent.count > before + 500
        filler.unlink()
        store.dispatch()
        sent.assert_everywhere(store)
    with open_store(volume, flush_mode) as store:
        sent.assert_everywhere(store)
        assert not store.recovery_report.problems


def warn_and_resume(volume: Path, flush_mode: str) -> None:
    with open_store(volume, flush_mode, warning_ratio=0.9) as store:
        sent = Sent()
        for _ in range(100):
            assert sent.put(store, "orders", 500).ok
        filler = volume / "filler"
        volume_now = os.statvfs(volume)
        left = volume_now.f_blocks // 12
        filler.write_bytes(bytes((volume_now.f_bavail - left) * volume_now.f_frsize))
        wait_until(lambda: not sent.put(store, "orders", 100).ok)
        refused = sent.put(store, "orders", 100)
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert refused.reason.startswith(f"disk full: {volume}/store/commitlog: ")
        assert refused.reason.endswith("of the disk used, writes are refused above 90%")
        sent.assert_everywhere(store)
        filler.unlink()
        wait_until(lambda: sent.put(store, "orders", 100).ok)
        sent.assert_everywhere(store)


def fill_and_die(volume: Path, flush_mode: str, journal: str) -> None:
    store = open_store(volume, flush_mode)
    sent, _ = fill_store(store, volume)
    store.dispatch()
    sent.save(Path(journal))
    os.kill(os.getpid(), signal.SIGKILL)


def fill_and_close(volume: Path, flush_mode: str, journal: str) -> None:
    with open_store(volume, flush_mode) as store:
        sent, _ = fill_store(store, volume)
        sent.save(Path(journal))


def reopen_while_full(volume: Path, flush_mode: str, journal: str) -> None:
    """The disk may be too full to recover; then it must be said, and nothing be spoilt."""
    sent = Sent.load(Path(journal))
    with contextlib.suppress(DiskFullError), open_store(volume, flush_mode) as store:
        sent.assert_in_log(store)


def reopen(volume: Path, flush_mode: str, journal: str) -> None:
    sent = Sent.load(Path(journal))
    with open_store(volume, flush_mode) as store:
        sent.assert_everywhere(store)
        assert sent.put(store, "orders", 100).ok
    with open_store(volume, flush_mode) as store:
        sent.assert_everywhere(store)


def touch_a_hole(volume: Path) -> None:
    path = volume / "sparse"
    with path.open("w+b") as file:
        file.truncate(1 << 20)
        with mmap.mmap(file.fileno(), 1 << 20) as mapped:
            fill_volume(volume)
            mapped[1 << 19] = 1


SCENARIOS: Final[dict[str, Callable[..., None]]] = {
    "touch-a-hole": touch_a_hole,
    "fill-and-resume": fill_and_resume,
    "warn-and-resume": warn_and_resume,
    "fill-and-die": fill_and_die,
    "fill-and-close": fill_and_close,
    "reopen-while-full": reopen_while_full,
    "reopen": reopen,
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
