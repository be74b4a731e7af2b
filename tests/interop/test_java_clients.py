"""The official Java clients, releases 4.9.8 and 5.3.3, cannot tell our servers from Java's.

One Java process per release runs all scenarios; each test judges what one of them received.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.kits.processes.java_clients import (
    Told,
    find_clients,
    offsets_by_queue,
    run_scenarios,
    went_well,
)
from tests.kits.processes.serving import Serving

pytestmark = pytest.mark.interop

SCENARIOS: Final = (
    "sync",
    "async",
    "oneway",
    "batch",
    "auto-created",
    "refused",
    "delayed",
    "timed",
    "transaction",
    "request-reply",
    "query",
    "push",
    "orderly",
    "broadcast",
    "retry",
    "rebalance",
    "lite-pull",
    "pull",
    "admin-topics",
    "admin-groups",
    "admin-broker",
)
SETTINGS: Final = {
    # A retried message starts at level three: 1 s, then 2 s.
    "messageDelayLevel": "1s 1s 1s 2s 3s 4s 5s 6s",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
}
SENT_COUNT: Final = 20
CONSUMED_COUNT: Final = 24
LONG_POLL_MS: Final = 5000
"""Far below the time that a pull is held: who gets its message sooner was woken."""

Run = dict[str, Told]


@pytest.fixture(
    scope="module",
    params=[
        # The scenarios of a release run once, so its tests have to stay in one process.
        pytest.param("4.9.8", marks=pytest.mark.xdist_group("java-clients-4.9.8")),
        pytest.param("5.3.3", marks=pytest.mark.xdist_group("java-clients-5.3.3")),
    ],
)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    toolchain = find_clients(version)
    work = tmp_path_factory.mktemp(f"clients-{version}")
    with Serving(work / "data", SETTINGS) as servers:
        yield run_scenarios(toolchain, work / "home", servers.namesrv, SCENARIOS)
    _assert_quiet(servers.log)


def _assert_quiet(log: Path) -> None:
    """No client can make our servers complain."""
    lines = log.read_text().splitlines()
    assert [line for line in lines if " ERROR " in line or "Traceback" in line] == []


def bodies(count: int) -> list[str]:
    return [f"body-{number}" for number in range(count)]


# -- sending -----------------------------------------------------------------------------------


def test_what_is_sent_is_received_with_all_its_properties(run: Run) -> None:
    told = went_well(run, "sync")
    sent, received = told.all("sent"), told.all("received")
    assert {line["status"] for line in sent} == {"SEND_OK"}
    assert {line["regionId"] for line in sent} == {"DefaultRegion"}
    by_id = {line["msgId"]: line for line in received}
    assert len(by_id) == len(received) == len(sent) == SENT_COUNT + 1
    for number, line in enumerate(sent[:SENT_COUNT]):
        found = by_id[line["msgId"]]
        assert (found["queueId"], found["queueOffset"]) == (line["queueId"], line["queueOffset"])
        assert found["offsetMsgId"] == line["offsetMsgId"]
        assert found["body"] == f"body-{number}"
        assert found["tags"] == f"Tag{'ABC'[number % 3]}"
        assert found["keys"] == f"key-{number}"
        assert found["properties"]["number"] == str(number)
    assert by_id[sent[-1]["msgId"]]["body"] == "large " * (20_000 // 6)


@pytest.mark.parametrize("scenario", ["async", "oneway", "batch"])
def test_every_way_of_sending_stores_each_message_once(run: Run, scenario: str) -> None:
    told = went_well(run, scenario)
    assert sorted(told.bodies("reader")) == sorted(bodies(SENT_COUNT))
    for offsets in offsets_by_queue(told.all("received")).values():
        assert offsets == list(range(len(offsets)))


def test_each_asynchronous_send_is_answered_with_its_own_place(run: Run) -> None:
    told = went_well(run, "async")
    places = {line["msgId"]: (line["queueId"], line["queueOffset"]) for line in told.all("sent")}
    assert len(places) == SENT_COUNT
    for line in told.all("received"):
        assert places[line["msgId"]] == (line["queueId"], line["queueOffset"])


def test_a_batch_lies_in_one_queue_in_order(run: Run) -> None:
    told = went_well(run, "batch")
    answer, received = told.one("sent"), told.all("received")
    assert {line["queueId"] for line in received} == {answer["queueId"]}
    assert [line["body"] for line in received] == bodies(SENT_COUNT)
    assert answer["offsetMsgId"].split(",") == [line["offsetMsgId"] for line in received]
    assert answer["queueOffset"] == 0


def test_a_topic_made_by_a_send_has_the_queues_the_producer_asked_for(run: Run) -> None:
    told = went_well(run, "auto-created")
    assert told.bodies("reader") == ["body-0"]
    route = told.one("route")
    assert (route["read"], route["write"], route["perm"]) == (3, 3, 6)


def test_a_message_for_a_queue_that_is_not_there_is_refused(run: Run) -> None:
    told = went_well(run, "refused")
    refused = told.one("refused")
    assert refused["code"] == 1
    assert "queueId[99]" in refused["message"]
    assert told.bodies("reader") == ["body-0"]


def test_delayed_messages_come_when_they_are_due(run: Run) -> None:
    received = went_well(run, "delayed").all("received")
    assert [line["body"] for line in received] == ["body-0", "body-1", "body-4"]
    waited = [line["storeTimestamp"] - line["bornTimestamp"] for line in received]
    assert waited[1] >= 1000
    assert waited[2] >= 2000


def test_messages_that_name_a_time_come_then_and_a_cancelled_one_never(run: Run) -> None:
    received = went_well(run, "timed").all("received")
    assert [line["body"] for line in received] == ["body-0", "body-1", "body-2", "body-4"]
    waited = [line["storeTimestamp"] - line["bornTimestamp"] for line in received]
    for least, found in zip((0, 1000, 2000), waited, strict=False):
        assert found >= least


def test_only_committed_transactions_are_seen(run: Run) -> None:
    told = went_well(run, "transaction")
    states = {line["outcome"]: line["state"] for line in told.all("prepared")}
    assert states["committed"] == "COMMIT_MESSAGE"
    assert states["rolled back"] == "ROLLBACK_MESSAGE"
    assert Counter(told.bodies("reader")) == Counter(
        {"committed": 1, "committed when asked": 1, "decided late": 1}
    )
    asked = told.one("asked")["counts"]
    assert asked.keys() == {"committed when asked", "rolled back when asked", "decided late"}
    assert asked["decided late"] >= 2


def test_requests_are_answered(run: Run, version: str) -> None:
    told = went_well(run, "request-reply")
    assert sorted(told.bodies("replier")) == bodies(6)
    answers = [line["body"] for line in told.all("answer", by="ask")]
    assert answers == [f"reply to body-{number}" for number in (3, 4, 5)]
    assert told.all("unanswered") == []
    # The call of 5.3.3 itself stops waiting too early, whatever the broker is.
    if version == "4.9.8":
        answers = [line["body"] for line in told.all("answer", by="request")]
        assert answers == [f"reply to body-{number}" for number in (0, 1, 2)]


def test_messages_are_found_by_key_and_by_id(run: Run) -> None:
    told = went_well(run, "query")
    found = {line["key"]: line["bodies"] for line in told.all("found")}
    assert found["key-3"] == ["body-3"]
    assert found["shared-1"] == ["body-1", "body-3", "body-5", "body-7"]
    assert found["nobody"] == ["code 208"]
    assert told.one("viewed", by="unique key")["body"] == "body-8"
    assert told.one("viewed", by="id")["body"] == "body-8"


# -- consuming ---------------------------------------------------------------------------------


def test_a_push_consumer_gets_each_message_with_its_tags_once(run: Run) -> None:
    told = went_well(run, "push")
    wanted = [body for number, body in enumerate(bodies(CONSUMED_COUNT)) if number % 3 != 1]
    assert sorted(told.bodies("consumer")) == sorted(wanted)
    assert {line["tags"] for line in told.all("received")} == {"TagA", "TagC"}


def test_ordered_consumption_keeps_the_order_of_each_queue(run: Run) -> None:
    told = went_well(run, "orderly")
    received = told.all("received")
    assert sorted(line["body"] for line in received) == sorted(bodies(CONSUMED_COUNT))
    for offsets in offsets_by_queue(received).values():
        assert offsets == list(range(len(offsets)))
    numbers = defaultdict(list)
    for line in received:
        number = int(line["properties"]["number"])
        numbers[number % 5].append(number)
    assert all(sent == sorted(sent) for sent in numbers.values())
    assert {line["body"] for line in told.all("paused")} == {"body-7", "body-17"}


def test_broadcasting_gives_every_message_to_every_member(run: Run) -> None:
    told = went_well(run, "broadcast")
    for member in ("first", "second"):
        assert sorted(told.bodies(member)) == sorted(bodies(CONSUMED_COUNT))


def test_a_failing_message_is_retried_later_and_later_and_ends_as_a_dead_letter(run: Run) -> None:
    told = went_well(run, "retry")
    failing = told.all("received", by="consumer", body="body-0")
    assert [line["reconsumeTimes"] for line in failing] == [0, 1, 2]
    pauses = [later["at"] - sooner["at"] for sooner, later in pairwise(failing)]
    assert pauses[0] >= 1000
    assert pauses[1] >= 2000
    assert {line["topic"] for line in failing} == {"java-retry"}
    recovering = told.all("received", by="consumer", body="body-1")
    assert [line["reconsumeTimes"] for line in recovering] == [0, 1]
    letter = told.one("received", by="reader")
    assert (letter["topic"], letter["body"]) == ("%DLQ%java-group-retry", "body-0")
    assert letter["msgId"] == failing[0]["msgId"]


def test_two_members_share_the_queues_and_nothing_is_lost(run: Run) -> None:
    told = went_well(run, "rebalance")
    shared = told.one("shared")
    assert set(told.bodies("first")) | set(told.bodies("second")) == set(bodies(shared["sent"]))
    assert shared["first"] >= CONSUMED_COUNT
    assert shared["second"] >= CONSUMED_COUNT


def test_lite_pull_starts_where_it_seeks_and_resumes_where_it_committed(run: Run) -> None:
    told = went_well(run, "lite-pull")
    assert sorted(told.bodies("assigned"), key=_number) == bodies(CONSUMED_COUNT)
    assert sorted(told.bodies("sought"), key=_number) == bodies(CONSUMED_COUNT)[8:]
    again = offsets_by_queue(told.all("received", by="from the beginning"))
    assert list(again.values()) == [list(range(CONSUMED_COUNT // 2))]
    assert sorted(told.bodies("subscribed"), key=_number) == bodies(CONSUMED_COUNT)
    assert told.one("committed", by="subscribed")["sum"] == CONSUMED_COUNT
    assert told.bodies("resumed") == [f"body-{CONSUMED_COUNT}"]
    assert told.one("committed", by="resumed")["sum"] == CONSUMED_COUNT + 1


def _number(body: str) -> int:
    return int(body.removeprefix("body-"))


def test_a_pull_consumer_gets_offsets_tags_and_is_woken(run: Run) -> None:
    told = went_well(run, "pull")
    offsets = told.one("offsets")
    assert (offsets["min"], offsets["max"], offsets["first"]) == (0, CONSUMED_COUNT, 0)
    assert told.bodies("filtered") == [f"body-{n}" for n in range(1, CONSUMED_COUNT, 3)]
    assert [(line["status"], line["next"]) for line in told.all("pulled")] == [
        ("FOUND", CONSUMED_COUNT),
        ("OFFSET_ILLEGAL", CONSUMED_COUNT),
    ]
    assert told.bodies("held") == [f"body-{CONSUMED_COUNT}"]
    assert told.one("woken")["millis"] < LONG_POLL_MS


# -- administration ----------------------------------------------------------------------------


def test_operators_see_and_delete_topics(run: Run) -> None:
    told = went_well(run, "admin-topics")
    assert told.one("cluster")["clusters"] == {"DefaultCluster": ["broker-a"]}
    assert told.one("cluster")["brokers"] == ["broker-a"]
    assert {"java-admin-topics", "TBW102", "broker-a"} <= set(told.one("listed")["topics"])
    in_cluster = told.one("listed in cluster")
    assert "java-admin-topics" in in_cluster["topics"]
    assert in_cluster["clusters"] == ["DefaultCluster"]
    queues = told.one("stats")["queues"]
    assert queues.keys() == {"0", "1", "2"}
    assert sum(maximum for _, maximum, _ in queues.values()) == len(told.all("sent"))
    assert all(minimum == 0 for minimum, _, _ in queues.values())
    assert all(updated > 0 for _, _, updated in queues.values())
    config = told.one("config")
    assert (config["read"], config["write"], config["perm"]) == (3, 3, 6)
    units = told.one("units")
    assert (units["min"], units["max"]) == (0, queues["0"][1])
    assert len(units["sizes"]) == units["max"]
    deleted = told.one("deleted")
    assert (deleted["code"], deleted["listed"]) == (17, False)


def test_operators_see_and_reset_groups(run: Run) -> None:
    told = went_well(run, "admin-groups")
    group = told.one("group")
    assert (group["retryMaxTimes"], group["retryQueueNums"], group["consumeEnable"]) == (
        16,
        1,
        True,
    )
    assert told.one("group changed")["retryMaxTimes"] == 7
    online = told.one("consumers")
    assert (online["count"], online["model"], online["type"]) == (
        1,
        "CLUSTERING",
        "CONSUME_PASSIVELY",
    )
    assert online["language"] == "JAVA"
    assert set(online["topics"]) == {"java-admin-groups", "%RETRY%java-group-admin-groups"}
    assert told.one("running")["queues"] == 2
    assert told.one("producers")["count"] == 1
    count = len(told.all("sent"))
    assert (told.one("progress")["broker"], told.one("progress")["consumer"]) == (count, count)
    assert told.one("consumed by")["groups"] == ["java-group-admin-groups"]
    assert told.one("reset")["offsets"] == [0, 0]
    assert set(Counter(told.bodies("consumer")).values()) == {2}
    assert told.one("deleted")["listed"] is False


def test_operators_see_and_change_a_broker(run: Run) -> None:
    told = went_well(run, "admin-broker")
    runtime = told.one("runtime")["table"]
    assert {"bootTimestamp", "putTps", "getTotalTps", "commitLogMaxOffset", "runtime"} <= set(
        runtime
    )
    assert int(runtime["commitLogMaxOffset"]) > 0
    settings = told.one("settings")["table"]
    assert settings["brokerName"] == "broker-a"
    assert settings["transactionTimeOut"] == SETTINGS["transactionTimeOut"]
    assert told.one("changed")["value"] == "1234"
    assert told.one("refused")["code"] == 16
    assert told.one("pair")["value"] == "value"
    assert told.one("pair gone")["code"] == 22
    assert told.one("name server")["count"] == 1
