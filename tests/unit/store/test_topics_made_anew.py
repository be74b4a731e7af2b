"""A topic is deleted and made anew: what is sent later is delivered, whatever waited or crashed."""

from collections.abc import Callable
from random import Random

import pytest

from flintmq.store.message_store import MessageStore
from flintmq.testing import ROOT, SimulatedFiles
from tests.kits.store.store_kit import bodies, message, new_files, open_store, sync_store


def put(store: MessageStore, *names: bytes, topic: str = "T") -> None:
    for name in names:
        assert store.put(message(name, topic=topic)).ok


def pool_store() -> MessageStore:
    return open_store(transient_pool_enabled=True, commit_log_file_size=1 << 20)


@pytest.mark.parametrize("make", [sync_store, pool_store], ids=["synchronous flush", "pool"])
def test_what_is_sent_after_a_deletion_is_delivered_though_older_messages_waited(
    make: Callable[[], MessageStore],
) -> None:
    store = make()
    put(store, b"a", b"b", b"c")
    store.commit()
    store.flush()
    store.dispatch()
    put(store, b"waits 1", b"waits 2")
    assert store.dispatcher.waiting
    assert store.clean_unused_topics(["other"]) == 1
    put(store, b"after 1", b"after 2")
    store.commit()
    store.flush()
    store.dispatch()
    assert bodies(store)[-2:] == [b"after 1", b"after 2"]


def test_a_topic_made_anew_begins_at_zero_when_nothing_waits() -> None:
    store = open_store()
    put(store, b"old 1", b"old 2")
    store.dispatch()
    store.clean_unused_topics([])
    put(store, b"new")
    store.dispatch()
    assert store.max_offset_in_queue("T", 0) == 1
    assert bodies(store) == [b"new"]


@pytest.mark.parametrize("has_marks", [True, False], ids=["with marks", "without marks"])
def test_a_recovery_that_meets_both_lives_of_a_topic_keeps_the_second(has_marks: bool) -> None:
    files = new_files()
    store = open_store(files)
    put(store, b"old 1", b"old 2", b"old 3")
    put(store, b"x", topic="kept")
    store.dispatch()
    store.clean_unused_topics(["kept"])
    put(store, b"new 1", b"new 2")
    store.dispatch()
    store.flush()
    if not has_marks:
        files.remove(ROOT / "checkpoint", missing_ok=False)
    dark: SimulatedFiles = next(files.crash_images(Random(0), 0))
    again = open_store(dark)
    assert bodies(again) == [b"new 1", b"new 2"]
    assert bodies(again, topic="kept") == [b"x"]
    put(again, b"new 3")
    again.dispatch()
    assert bodies(again) == [b"new 1", b"new 2", b"new 3"]


def test_a_deletion_that_finds_nothing_left_waits_for_the_one_that_removed_it() -> None:
    files = new_files()
    store = open_store(files)
    put(store, b"old 1", b"old 2")
    store.dispatch()
    store.checkpoint()
    # Somebody else has removed the queue, and has not come to making it durable.
    assert list(store.forget_unused_topics(lambda topic: topic == "other")) == [None]
    store.clean_unused_topics(["other"])
    for image in (files.process_crash_image(), *files.crash_images(Random(0), 3)):
        assert bodies(open_store(image)) == []
