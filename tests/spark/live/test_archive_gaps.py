"""What an archive of live topics says and does where messages, topics or brokers are gone."""

from pathlib import Path
from typing import Any

import pytest

from flintmq.client.blocking import Producer
from flintmq.client.messaging.messages import Message
from flintmq.client.pulling.puller import PullAnswer
from flintmq.format import fastjson
from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import ArchiveError
from flintmq.spark.jobs.archive.archive_check import check_archive
from flintmq.spark.jobs.archive.archive_manifest import QueueEnd
from flintmq.spark.jobs.archive.archive_run import ArchiveReport
from flintmq.spark.jobs.archive.live_archive import archive_topics
from flintmq.spark.jobs.archive.live_archive_losses import LossRule
from flintmq.spark.jobs.archive.live_archive_plan import (
    PlannedRange,
    prove_unchanged,
    queue_end,
    record_at,
)
from flintmq.spark.jobs.archive.live_archive_state import BrokerFacts, state_files
from flintmq.spark.jobs.archive.live_archive_task import ArchivedRange, bundled, joined
from flintmq.spark.jobs.archive.store_restore import restore
from flintmq.spark.live.errors import UnreachableError
from flintmq.spark.live.fetch import AHEAD_COUNT_MAX, OVERLAP_BYTES_MAX, RangeFetch
from flintmq.spark.live.live_options import parse_batch
from flintmq.spark.live.ranges import QueueRange
from flintmq.spark.options.store_options import OnCorrupt
from flintmq.testing import EmbeddedCluster
from tests.kits.spark.archive_kit import bounds_of, rows_of, serving
from tests.kits.spark.fake_cluster import BROKER, FakeCluster, VirtualTime
from tests.kits.spark.inline_spark import inline_spark
from tests.kits.spark.live_kit import SHORT_LIVED, Admin, bodies, read, send, send_until_cut, texts
from tests.kits.store.offline_stores import flip

FILE_SIZE = 1 << 20


def add(
    namesrv: str, topic: str, to: Path, *, allow_gap: bool = False, **options: str
) -> ArchiveReport:
    """Add what is new in a topic."""
    source = {"namesrv": namesrv, "subscribe": topic, **options}
    return archive_topics(inline_spark(), source, to, allow_gap=allow_gap)


def test_what_retention_was_faster_with_is_an_error_or_a_hole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    to, root = tmp_path / "archive", tmp_path / "root"
    with (
        EmbeddedCluster(manual_clock=True, **SHORT_LIVED) as cluster,
        Admin(cluster.namesrv) as admin,
    ):
        admin.set_topic("short", 1)
        cluster.send("short", b"first")
        add(cluster.namesrv, "short", to)
        send_until_cut(cluster, "short", 2)
        with pytest.raises(ArchiveError, match=r"were deleted before .* \(allow_gap goes on"):
            add(cluster.namesrv, "short", to)
        add(cluster.namesrv, "short", to, allow_gap=True)
        assert "messages are missing: queue=short queue 0 of broker-a" in caplog.text
        left = rows_of(cluster.namesrv, "broker-a", "short")
    assert check_archive(inline_spark(), to).ok
    report = restore(inline_spark(), to, root / "store")
    (problem,) = report.problems
    assert "consumequeue/short/0: the log has no records for" in problem
    with serving(root, "broker-a", mappedFileSizeCommitLog=FILE_SIZE) as restored:
        assert list(bounds_of(restored.namesrv, "short").values()) == [(0, 21)]
        # What lies behind the hole has the offsets that it had.
        found = [one.queue_offset for one in restored.messages("short")]
        assert found[-len(left) :] == [row["queueOffset"] for row in left]


def test_a_topic_that_was_made_anew_is_an_error_or_taken_from_its_first_message(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    to, root = tmp_path / "archive", tmp_path / "root"
    with Admin(cluster.namesrv) as admin:
        admin.set_topic("anew", 1)
        send(cluster, "anew", range(10))
        add(cluster.namesrv, "anew", to)
        admin.delete_topic("anew")
        with pytest.raises(ArchiveError, match="anew queue 0 of broker-a: its topic was deleted"):
            add(cluster.namesrv, "anew", to)
        assert add(cluster.namesrv, "anew", to, allow_gap=True).run is None
        admin.set_topic("anew", 1)
        send(cluster, "anew", range(10, 13))
        with pytest.raises(ArchiveError, match="it ends at 3, and 10 was archived"):
            add(cluster.namesrv, "anew", to)
        # It may be longer than the old one was: then only its messages tell.
        send(cluster, "anew", range(13, 25))
        with pytest.raises(ArchiveError, match="its message at 9 is another one"):
            add(cluster.namesrv, "anew", to)
        assert add(cluster.namesrv, "anew", to, allow_gap=True).record_count == 15
        send(cluster, "anew", range(25, 27))
        assert add(cluster.namesrv, "anew", to).record_count == 2
    assert check_archive(inline_spark(), to).record_count == 27
    # As in the log of the broker, the queue is the one that was made last.
    restore(inline_spark(), to, root / "store")
    with serving(root, "broker-a") as restored:
        assert bodies(read(restored.namesrv, subscribe="anew")) == texts(range(10, 27))


def test_a_topic_that_is_made_anew_and_empty_is_waited_for(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    with Admin(cluster.namesrv) as admin:
        for topic in ("empty", "beside"):
            admin.set_topic(topic, 1)
        send(cluster, "empty", range(3))
        add(cluster.namesrv, "empty,beside", to)
        admin.delete_topic("empty")
        admin.set_topic("empty", 1)
        send(cluster, "beside", range(1))
        assert add(cluster.namesrv, "empty,beside", to, allow_gap=True).record_count == 1
        send(cluster, "empty", range(3, 8))
        assert add(cluster.namesrv, "empty,beside", to).record_count == 5


def test_queues_that_are_closed_for_a_while_keep_their_place(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    with Admin(cluster.namesrv) as admin:
        admin.set_topic("closed", 2)
        send(cluster, "closed", range(10))
        add(cluster.namesrv, "closed", to)
        admin.set_topic("closed", 1)
        with pytest.raises(ArchiveError, match="closed queue 1 of broker-a: its topic has fewer"):
            add(cluster.namesrv, "closed", to)
        send(cluster, "closed", range(10, 12))
        assert add(cluster.namesrv, "closed", to, allow_gap=True).record_count == 2
        admin.set_topic("closed", 2)
        send(cluster, "closed", range(12, 18))
        assert add(cluster.namesrv, "closed", to).record_count == 6


def test_another_broker_of_the_same_name_is_refused(tmp_path: Path) -> None:
    to = tmp_path / "archive"
    with EmbeddedCluster() as cluster:
        send(cluster, "same", range(40))
        add(cluster.namesrv, "same", to)
    with EmbeddedCluster() as cluster:
        send(cluster, "same", range(60))
        for allow_gap, words in (
            (False, "it is not the queue that was archived, but made anew"),
            (True, "the broker has another log; it needs another archive"),
        ):
            with pytest.raises(ArchiveError, match=words):
                add(cluster.namesrv, "same", to, allow_gap=allow_gap)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"brokerClusterName": "other"}, "belonged to the cluster DefaultCluster, not other"),
        ({"mappedFileSizeCommitLog": 8 << 20}, "had log files of 4194304, not 8388608"),
    ]
    for settings, words in changes:
        with EmbeddedCluster(**settings) as cluster:
            # Queues that the archive does not know: the broker itself tells.
            send(cluster, "elsewhere", range(1))
            with pytest.raises(ArchiveError, match=words):
                add(cluster.namesrv, "elsewhere", to)


def test_a_broker_that_is_down_is_no_loss(tmp_path: Path) -> None:
    to = tmp_path / "archive"
    with EmbeddedCluster() as cluster, Admin(cluster.namesrv) as admin:
        other: dict[str, Any] = {
            "root": tmp_path / "b",
            "namesrvAddr": cluster.namesrv,
            "brokerName": "broker-b",
        }
        with EmbeddedCluster(**other):
            admin.set_topic("spread", 1, broker_count=2)
            send(cluster, "spread", range(4))
            assert len(add(cluster.namesrv, "spread", to).stores) == 2
        with pytest.raises(UnreachableError, match="broker-b is down"):
            add(cluster.namesrv, "spread", to, allow_gap=True, retries="1")
        with EmbeddedCluster(**other):
            send(cluster, "spread", range(4, 10))
            assert add(cluster.namesrv, "spread", to).record_count == 6


def test_topics_may_come_and_go(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    to, root = tmp_path / "archive", tmp_path / "root"
    send(cluster, "come-1", range(4))
    send(cluster, "come-2", range(4, 8))
    assert add(cluster.namesrv, "come-2", to).record_count == 4
    # Its messages stand before those of the first run.
    assert add(cluster.namesrv, "come-1,come-2", to).record_count == 4
    send(cluster, "come-2", range(8, 10))
    assert add(cluster.namesrv, "come-1", to).run is None
    source = {"namesrv": cluster.namesrv, "subscribePattern": "come-.*"}
    assert archive_topics(inline_spark(), source, to).record_count == 2
    restore(inline_spark(), to, root / "store")
    topics = ("come-1", "come-2")
    with serving(root, "broker-a") as restored:
        found = rows_of(restored.namesrv, "broker-a", *topics)
    assert found == rows_of(cluster.namesrv, "broker-a", *topics)


def test_a_damaged_message_ends_a_run_or_is_left_out(tmp_path: Path) -> None:
    to = tmp_path / "archive"
    with EmbeddedCluster(root=tmp_path / "root") as cluster, Admin(cluster.namesrv) as admin:
        admin.set_topic("harmed", 1)
        send(cluster, "harmed", range(5))
        log = tmp_path / "root" / "store" / "commitlog" / f"{0:020}"
        flip(log, log.read_bytes().index(b"m2"))
        with pytest.raises(ArchiveError, match=r"at 2 is damaged: .* \(on_corrupt=skip"):
            add(cluster.namesrv, "harmed", to, allow_gap=True)
        source = {"namesrv": cluster.namesrv, "subscribe": "harmed"}
        report = archive_topics(inline_spark(), source, to, on_corrupt=OnCorrupt.SKIP)
        assert report.stores[0].queues is not None
        (queue,) = report.stores[0].queues
        assert (queue.start, queue.end, queue.record_count) == (0, 5, 4)
        assert add(cluster.namesrv, "harmed", to).run is None


QUEUE = MessageQueue("t", BROKER, 0)


def read_of(cluster: FakeCluster, runner: VirtualTime, answer_count: int) -> ArchivedRange:
    """Return what was read of a queue whole, in so many answers."""
    queue = cluster.found(QUEUE)
    first, last = (
        runner.run(record_at(cluster, QUEUE, offset)) for offset in (queue.begin, queue.end - 1)
    )
    count = len(queue.messages)
    return ArchivedRange(QUEUE, count, 0, 1, first, last, answer_count, queue.begin)


def proven_by(cluster: FakeCluster, runner: VirtualTime, planned: PlannedRange) -> int:
    """Read a range as a task does that fetches it ahead; return how many answers lack a proof."""
    fetch = RangeFetch(
        runner, cluster, planned.wanted, LossRule(allow_gap=False, skips_damage=False)
    )
    runner.run(fetch.begin(planned.last.is_of if planned.last else None))
    answers = list(fetch.answers())
    assert [one.start for one in answers[1:]] == [one.end for one in answers[:-1]]
    return sum(not one.is_proven for one in answers)


@pytest.mark.parametrize("start", [0, 40])
def test_a_short_range_brings_its_proof_with_it(runner: VirtualTime, start: int) -> None:
    cluster = FakeCluster()
    cluster.make("t", 1)
    cluster.append("t", 0, 40 + 70)
    last = runner.run(record_at(cluster, QUEUE, start - 1)) if start else None
    planned = PlannedRange(QueueRange(QUEUE, start, 110), last, begin=0)
    assert planned.is_last_there == (start > 0)
    cluster.asked.clear()
    count = proven_by(cluster, runner, planned)
    assert count == (1 if last is None else 0)
    assert len(cluster.asked) == (4 if last is None else 3)
    read = read_of(cluster, runner, count)
    cluster.asked.clear()
    runner.run(prove_unchanged(cluster, [planned], {QUEUE: read}))
    assert not cluster.asked, "nothing is asked once more"


@pytest.mark.parametrize("start", [0, 40])
@pytest.mark.parametrize("pull_number", [1, 2])
def test_a_topic_that_is_made_anew_between_two_pulls_has_no_proof(
    runner: VirtualTime, start: int, pull_number: int
) -> None:
    cluster = MadeAnewWhileRead(pull_number)
    cluster.make("t", 1)
    cluster.append("t", 0, 120)
    last = runner.run(record_at(cluster, QUEUE, start - 1)) if start else None
    planned = PlannedRange(QueueRange(QUEUE, start, 120), last, begin=0)
    cluster.is_read = True
    count = proven_by(cluster, runner, planned)
    # The first pull of a queue that nobody has read before needs none.
    is_other = last is not None or pull_number > 1
    assert count > (1 if last is None else 0) if is_other else count == 1
    if is_other:
        first = cluster.first if last is None else None
        read = read_of(cluster, runner, count)
        read = read._replace(is_in_order=True, first=first or read.first)
        with pytest.raises(ArchiveError, match="made anew while it was read"):
            runner.run(prove_unchanged(cluster, [planned], {QUEUE: read}))


class MadeAnewWhileRead(FakeCluster):
    """Has its topic made anew before one of its pulls is answered."""

    def __init__(self, pull_number: int) -> None:
        super().__init__()
        self.is_read = False
        self.first: QueueEnd | None = None
        self._pulls_left = pull_number

    async def pull(
        self, queue: MessageQueue, offset: int, count_max: int, *, everything: bool = False
    ) -> PullAnswer:
        if self.is_read:
            self._pulls_left -= 1
            if not self._pulls_left:
                self.delete("t")
                self.make("t", 1)
                self.append("t", 0, 120)
        answer = await super().pull(queue, offset, count_max, everything=everything)
        if self.is_read and self.first is None:
            size = int.from_bytes(answer.body[:4], "big")
            self.first = queue_end(offset, 0, answer.body[:size])
        return answer


def test_large_records_are_not_pulled_twice_for_a_proof(runner: VirtualTime) -> None:
    cluster = FakeCluster()
    cluster.make("t", 1)
    cluster.append("t", 0, 33, body=bytes(OVERLAP_BYTES_MAX))
    cluster.asked.clear()
    assert proven_by(cluster, runner, PlannedRange(QueueRange(QUEUE, 0, 33), None, begin=0)) == 2
    assert len(cluster.asked) == 2


def test_tasks_of_many_short_ranges_are_alike_in_length() -> None:
    ranges = [
        PlannedRange(QueueRange(QUEUE._replace(topic=f"t{number:05}"), 0, 61), None, begin=0)
        for number in range(10_000)
    ]
    rule = LossRule(allow_gap=False, skips_damage=False)
    options = parse_batch({"namesrv": "none:1", "subscribePattern": "t.*"})
    tasks = bundled(ranges, options=options, rule=rule, slots=2, root="")
    sizes = [sum(one.length for one in task.ranges) for task in tasks]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= 4 * AHEAD_COUNT_MAX


@pytest.mark.parametrize(
    ("answer_count", "is_in_order", "question_count"), [(1, True, 0), (2, True, 1), (2, False, 3)]
)
def test_no_more_is_asked_than_proves_what_was_read(
    runner: VirtualTime, answer_count: int, is_in_order: bool, question_count: int
) -> None:
    cluster = FakeCluster()
    cluster.make("t", 1)
    cluster.append("t", 0, 9)
    read = read_of(cluster, runner, answer_count)._replace(is_in_order=is_in_order)
    cluster.asked.clear()
    planned = PlannedRange(QueueRange(QUEUE, 0, 9), None, begin=0)
    runner.run(prove_unchanged(cluster, [planned], {QUEUE: read}))
    assert len(cluster.asked) == question_count
    if question_count:
        cluster.delete("t")
        cluster.make("t", 1)
        cluster.append("t", 0, 9)
        with pytest.raises(ArchiveError, match="its message at 0 is another one"):
            runner.run(prove_unchanged(cluster, [planned], {QUEUE: read}))


def test_a_queue_that_begins_earlier_than_when_it_was_planned_for_is_another_one(
    runner: VirtualTime,
) -> None:
    cluster = FakeCluster()
    cluster.make("t", 1)
    cluster.append("t", 0, 5)
    cluster.expire("t", 0, 5)
    planned = PlannedRange(QueueRange(QUEUE, 5, 5), None, begin=5)
    cluster.delete("t")
    cluster.make("t", 1)
    cluster.append("t", 0, 9)
    read = read_of(cluster, runner, 1)
    with pytest.raises(ArchiveError, match="made anew while it was read: it begins at 0, and beg"):
        runner.run(prove_unchanged(cluster, [planned], {QUEUE: read}))


def test_what_ranges_of_a_queue_were_told_is_summed_up() -> None:
    empty = ArchivedRange(QUEUE, answer_count=2, begin=7)
    some = ArchivedRange(QUEUE, 3, 10, 40, answer_count=1, begin=4, is_in_order=True)
    more = ArchivedRange(QUEUE, 2, 40, 60, answer_count=1, is_in_order=True)
    for ranges in ((empty, some, more), (some, empty, more), (some, more, empty)):
        found = joined(ranges)[QUEUE]
        assert (found.record_count, found.start, found.end) == (5, 10, 60)
        assert (found.answer_count, found.begin) == (4, 4)
        assert not found.is_in_order, "ranges of a queue are read beside each other"
    assert joined([some, empty])[QUEUE].is_in_order


def test_offsets_are_kept_for_what_the_archive_has_and_never_beyond() -> None:
    facts = BrokerFacts(
        cluster="c",
        log_file_size=1,
        queue_file_size=20,
        hash_slots=1,
        index_entries=2,
        state={
            "topics.json": {"topicConfigTable": {"t": {"topicName": "t"}}},
            "subscriptionGroup.json": {},
            # Names of queues stand bare, or in quotes.
            "consumerOffset.json": {
                "offsetTable": {"t@g": {0: 7, "1": 9, 2: 1}, "other@g": {0: 1}, "t@h": "?"}
            },
            "delayOffset.json": {"offsetTable": {1: 5, 2: 6, 3: 7}},
        },
    )
    ends = {("t", 0): 10, ("t", 1): 4, ("SCHEDULE_TOPIC_XXXX", 0): 9, ("SCHEDULE_TOPIC_XXXX", 2): 2}
    found = {name: fastjson.loads(text) for name, text in state_files(facts, ends).items()}
    assert found["consumerOffset.json"] == {"offsetTable": {"t@g": {0: 7, 1: 4}}}
    assert found["delayOffset.json"] == {"offsetTable": {1: 5, 3: 2}}
    assert found["topics.json"] == facts.state["topics.json"]
    without = state_files(facts, {("t", 0): 10})
    assert "delayOffset.json" not in without


def test_a_broker_that_has_given_nothing_is_restored_empty(tmp_path: Path) -> None:
    to = tmp_path / "archive"
    with (
        EmbeddedCluster() as cluster,
        Admin(cluster.namesrv) as admin,
        EmbeddedCluster(root=tmp_path / "b", namesrvAddr=cluster.namesrv, brokerName="broker-b"),
    ):
        admin.set_topic("one-sided", 1, broker_count=2)
        queue = MessageQueue("one-sided", "broker-a", 0)
        with Producer(namesrv=cluster.namesrv, group="one-sided") as producer:
            producer.send(Message(topic="one-sided", body=b"m0"), queue=queue)
        counts = [one.record_count for one in add(cluster.namesrv, "one-sided", to).stores]
    assert counts == [1, 0]
    report = restore(inline_spark(), to, tmp_path / "root" / "store", store="broker-b")
    assert (report.record_count, report.log_file_count) == (0, 0)
    with serving(tmp_path / "root", "broker-b") as restored:
        assert restored.send("one-sided", b"m0").queue_offset == 0


def test_many_small_topics_are_archived_in_few_files_and_restored(tmp_path: Path) -> None:
    to, root = tmp_path / "archive", tmp_path / "root"
    topics = {f"small-{number:02}": number % 4 for number in range(40)}
    with EmbeddedCluster() as cluster:
        for topic, count in topics.items():
            send(cluster, topic, range(count + 1))
        source = {"namesrv": cluster.namesrv, "subscribePattern": "small-.*"}
        report = archive_topics(inline_spark(), source, to)
        assert report.record_count == sum(topics.values()) + len(topics)
        assert report.file_count < len(topics) / 2
        assert archive_topics(inline_spark(), source, to).record_count == 0
        left = rows_of(cluster.namesrv, "broker-a", *topics)
    assert check_archive(inline_spark(), to).ok
    assert not restore(inline_spark(), to, root / "store").problems
    with serving(root, "broker-a") as restored:
        assert rows_of(restored.namesrv, "broker-a", *topics) == left
