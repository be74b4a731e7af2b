"""A topic is deleted and made anew: what is sent later is delivered, whatever waited or crashed."""

from collections.abc import Callable
from random import Random

import pytest

from flintmq.store.append_group.sends import Sends, SendTarget
from flintmq.store.appending.group_appender import NotAppended
from flintmq.store.message_store import MessageStore
from flintmq.testing import ROOT, SimulatedFiles
from tests.kits.store.store_kit import (
    BORN_HOST,
    BORN_MS,
    STORE_HOST,
    bodies,
    message,
    new_files,
    open_store,
    sync_store,
)


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
    assert store.min_offset_in_queue("T", 0) == 0
    assert store.max_offset_in_queue("T", 0) == 2
    assert not store.dispatcher.forgotten


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


def written(store: MessageStore) -> None:
    """Bring all that waits to the disk and into the queues."""
    store.commit()
    store.flush()
    store.dispatch()


@pytest.mark.parametrize("make", [sync_store, pool_store], ids=["synchronous flush", "pool"])
def test_messages_that_wait_to_make_their_queue_go_with_their_topic(
    make: Callable[[], MessageStore],
) -> None:
    store = make()
    put(store, b"waits 1", b"waits 2")
    assert store.queues.get("T", 0) is None
    store.clean_unused_topics(["other"])
    put(store, b"after")
    written(store)
    assert bodies(store) == [b"after"]
    assert store.max_offset_in_queue("T", 0) == 1


@pytest.mark.parametrize("make", [sync_store, pool_store], ids=["synchronous flush", "pool"])
def test_append_groups_that_wait_go_with_their_topic_and_others_stay(
    make: Callable[[], MessageStore],
) -> None:
    store = make()
    put(store, b"T 1")
    put(store, b"U 1", topic="U")
    written(store)
    targets = [SendTarget("T", 0), SendTarget("U", 0), SendTarget("T", 0)]
    names = [b"T waits 1", b"U waits", b"T waits 2"]
    group = store.append_group(
        Sends(targets, [BORN_MS] * 3, names, [b""] * 3, [BORN_HOST] * 3, b""), STORE_HOST
    )
    assert not isinstance(group, NotAppended)
    assert store.dispatcher.waiting
    list(store.forget_unused_topics(lambda topic: topic == "U"))
    put(store, b"T after")
    put(store, b"U after", topic="U")
    written(store)
    assert bodies(store) == [b"T after"]
    assert bodies(store, topic="U") == [b"U 1", b"U waits", b"U after"]


def test_messages_that_wait_go_with_a_light_queue_and_stay_in_their_topic() -> None:
    store = sync_store(enable_multi_dispatch=True, enable_lmq=True)
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}

    def put_light(body: bytes) -> None:
        assert store.put(message(body, properties=light)).ok

    put_light(b"1")
    written(store)
    put_light(b"2")
    assert store.clean_unused_light_queue("%LMQ%a")
    put_light(b"3")
    written(store)
    assert bodies(store, topic="%LMQ%a") == [b"3"]
    assert store.max_offset_in_queue("%LMQ%a", 0) == 1
    assert bodies(store, topic="%LMQ%b") == bodies(store) == [b"1", b"2", b"3"]


def test_an_expired_queue_is_kept_while_messages_wait_to_come_into_it() -> None:
    store = sync_store()
    put(store, b"old")
    put(store, *([bytes(900)] * 8), topic="other")
    written(store)
    store.checkpoint()
    store.log.files.delete_expired_by_time(0, forced_after_ms=0, immediate=True, limit=1)
    store.delete_expired_views()
    put(store, b"waits")
    assert store.clean_expired_queues() == 0
    written(store)
    assert bodies(store) == [b"waits"]
    assert store.max_offset_in_queue("T", 0) == 2


def test_a_crash_after_a_deletion_brings_nothing_back_that_waited() -> None:
    files = new_files()
    store = sync_store(files)
    put(store, b"old 1", b"old 2")
    put(store, b"x", topic="kept")
    written(store)
    put(store, b"waits 1", b"waits 2")
    store.clean_unused_topics(["kept"])
    for image in (files.process_crash_image(), *files.crash_images(Random(0), 3)):
        again = sync_store(image)
        assert bodies(again) == []
        assert bodies(again, topic="kept") == [b"x"]


def test_a_crash_after_a_deletion_brings_nothing_back_that_waited_to_make_its_queue() -> None:
    files = new_files()
    store = sync_store(files)
    put(store, b"x", topic="kept")
    written(store)
    put(store, b"waits")
    store.clean_unused_topics(["kept"])
    for image in (files.process_crash_image(), *files.crash_images(Random(0), 3)):
        assert bodies(sync_store(image)) == []
