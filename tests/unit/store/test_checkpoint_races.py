"""A topic is deleted while a checkpoint runs in its thread: nothing of that is a failed sync."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flintmq.store.files.local_files import LocalFiles
from flintmq.store.files.local_region import LocalRegion
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutStatus
from tests.kits.store.store_kit import SMALL, message


class InterruptedFiles(LocalFiles):
    """Files of the machine that let something happen before a certain file call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.at = -1
        self.happens: Callable[[], object] = lambda: None

    def _count(self) -> None:
        number, self.calls = self.calls, self.calls + 1
        if number == self.at:
            self.happens()

    def sync_directory(self, path: Path) -> None:
        self._count()
        super().sync_directory(path)

    def map_region(self, path: Path, descriptor: int, size: int, *, read_only: bool) -> LocalRegion:
        return _InterruptedRegion(self, path, descriptor, size, read_only=read_only)

    def region_synced(self) -> None:
        self._count()


class _InterruptedRegion(LocalRegion):
    def __init__(
        self, files: InterruptedFiles, path: Path, descriptor: int, size: int, *, read_only: bool
    ) -> None:
        super().__init__(path, descriptor, size, read_only=read_only)
        self._files = files

    def sync(self) -> None:
        self._files.region_synced()
        super().sync()


def checkpoint_with_deletion(root: Path, at: int) -> tuple[MessageStore, int]:
    """Return a store after a checkpoint in which a topic went at file call number ``at``."""
    files = InterruptedFiles()
    store = MessageStore.open(replace(SMALL, root=root), files=files, background=False)
    for queue_id in range(3):
        store.put(message(b"kept", topic="kept", queue_id=queue_id))
        store.put(message(b"gone", topic="gone", queue_id=queue_id))
    store.dispatch()
    files.calls = 0
    files.at = at

    def delete() -> None:
        for queue in list(store.queues):
            if queue.topic == "gone":
                store.queues.forget(queue)

    files.happens = delete
    store.checkpoint()
    return store, files.calls


def call_count(root: Path) -> int:
    store, count = checkpoint_with_deletion(root, -1)
    store.close()
    return count


@pytest.mark.parametrize("step", range(20))
def test_a_topic_deleted_while_a_checkpoint_runs_leaves_the_store_writable(
    tmp_path: Path, step: int
) -> None:
    count = call_count(tmp_path / "counted")
    assert count <= 20, "more parameters are needed to cover every call"
    store, _ = checkpoint_with_deletion(tmp_path / "store", min(step, count - 1))
    with store:
        assert store.flags.writable, store.flags.reasons()
        assert store.put(message(topic="kept")).status is PutStatus.PUT_OK
    with MessageStore.open(store.config, background=False) as again:
        assert again.max_offset_in_queue("kept", 1) == 1
