"""A store that may map no further file: what it has taken is there once it may."""

from contextlib import closing, suppress
from pathlib import Path

import pytest

from flintmq.store.errors import StoreError
from flintmq.store.files import file_map
from flintmq.store.message_store import MessageStore
from tests.kits.store.offline_stores import small_config
from tests.kits.store.store_kit import bodies, message

QUEUES = 40


def test_what_was_taken_is_in_its_queues_once_files_can_be_mapped_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = file_map._MapRoom(20)
    monkeypatch.setattr(file_map, "_room", lambda: room)
    taken, reasons = [], set()
    store = MessageStore.open(small_config(tmp_path), background=False)
    for queue_id in range(QUEUES):
        try:
            result = store.put(message(b"%d" % queue_id, queue_id=queue_id))
            store.dispatch()
        except StoreError as error:
            reasons.add(str(error))
            continue
        if result.ok:
            taken.append(queue_id)
        else:
            reasons.add(result.reason)
    assert 5 < len(taken) < QUEUES
    assert all("vm.max_map_count" in reason for reason in reasons)
    with suppress(StoreError):
        store.close()
    wider = file_map._MapRoom(200)
    monkeypatch.setattr(file_map, "_room", lambda: wider)
    with closing(MessageStore.open(small_config(tmp_path), background=False)) as store:
        assert [bodies(store, "T", queue_id) for queue_id in taken] == [
            [b"%d" % queue_id] for queue_id in taken
        ]
        assert store.put(message(b"more", queue_id=QUEUES)).ok
