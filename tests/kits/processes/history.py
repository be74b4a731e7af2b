"""What the scenarios of a history have to find again: settings, messages, progress."""

from typing import Final

from tests.kits.processes.java_clients import Told

COUNT: Final = 30
QUEUES: Final = 3
CONSUMED_PER_QUEUE: Final = 4


def assert_settings_survived(continued: Told) -> None:
    assert continued.one("group")["retryMaxTimes"] == 9
    topic = continued.one("topic")
    assert (topic["read"], topic["write"]) == (QUEUES, QUEUES)


def assert_messages_survived(written: Told, continued: Told) -> None:
    old = {
        line["msgId"]: (line["queueId"], line["queueOffset"])
        for line in written.all("sent")[:COUNT]
    }
    read = {line["msgId"]: line for line in continued.all("received", by="reader")}
    assert {
        message: (read[message]["queueId"], read[message]["queueOffset"]) for message in old
    } == old
    delayed = [line for line in read.values() if line["body"] == "delayed"]
    assert [line["topic"] for line in delayed] == ["java-history"]
    assert continued.one("found")["count"] == 1
    # The transaction was left open; the new broker asked, and the producer committed.
    pending = [line for line in read.values() if line["topic"] == "java-history-pending"]
    assert [line["body"] for line in pending] == ["committed when asked"]


def assert_progress_survived(continued: Told) -> None:
    assert continued.one("progress")["offsets"] == [CONSUMED_PER_QUEUE] * QUEUES
    got = {line["body"]: line for line in continued.all("received", by="group")}
    left = {f"body-{number}" for number in range(QUEUES * CONSUMED_PER_QUEUE, COUNT)}
    new = {f"body-{COUNT + number}" for number in range(QUEUES)}
    assert got.keys() == left | new | {"delayed"}
    # What is sent now lies right behind what was there.
    ends = {0: 10, 1: 10, 2: 10}
    delayed = got["delayed"]
    ends[delayed["queueId"]] = delayed["queueOffset"] + 1
    assert {line["queueId"]: line["queueOffset"] for line in continued.all("sent")} == ends
