import pytest

from flintmq.client.assigning.strategies import (
    ConsistentHash,
    FixedQueues,
    MachineRoom,
    MachineRoomNearby,
    QueueStrategy,
    allocate,
    averagely,
    by_circle,
)
from flintmq.client.errors import UsageError
from flintmq.model.message_queue import MessageQueue


def queues(count: int, broker_name: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue("TopicTest", broker_name, number) for number in range(count)]


def shares(strategy: QueueStrategy, ids: list[str], found: list[MessageQueue]) -> list[list[int]]:
    return [[queue.queue_id for queue in allocate(strategy, one, found, ids)] for one in ids]


@pytest.mark.parametrize(
    ("strategy", "queue_count", "expected"),
    [
        (averagely, 8, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (averagely, 10, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (averagely, 4, [[0], [1], [2], [3], [], []]),
        (by_circle, 8, [[0, 3, 6], [1, 4, 7], [2, 5]]),
    ],
)
def test_members_get_what_the_java_client_gives_them(
    strategy: QueueStrategy, queue_count: int, expected: list[list[int]]
) -> None:
    ids = [f"c{number}" for number in range(len(expected))]
    assert shares(strategy, ids, queues(queue_count)) == expected


def test_machine_rooms_keep_to_their_own_queues() -> None:
    near, far = queues(8, "room1@a"), queues(3, "room2@a")
    strategy = MachineRoom(frozenset({"room1"}))
    assert shares(strategy, ["a", "b", "c"], near + far) == [[0, 1, 6], [2, 3, 7], [4, 5]]


def test_rooms_without_members_are_shared_by_all() -> None:
    strategy = MachineRoomNearby(
        averagely,
        room_of_queue=lambda queue: queue.broker_name,
        room_of_client=lambda client_id: client_id.partition("-")[0],
    )
    both = queues(4, "A") + queues(4, "B")
    found = [
        [(queue.broker_name, queue.queue_id) for queue in allocate(strategy, one, both, ids)]
        for ids in [["A-c1", "A-c2"]]
        for one in ids
    ]
    assert found == [
        [("A", 0), ("A", 1), ("B", 0), ("B", 1)],
        [("A", 2), ("A", 3), ("B", 2), ("B", 3)],
    ]
    with pytest.raises(UsageError, match="without a machine room"):
        allocate(strategy, "-c1", both, ["-c1"])


def test_the_ring_is_that_of_the_java_class() -> None:
    ids = ["10.0.0.1@A", "10.0.0.2@B", "10.0.0.3@C"]
    assert shares(ConsistentHash(), ids, queues(8)) == [[0], [2, 5, 6], [1, 3, 4, 7]]


def test_named_queues_are_given_to_whoever_named_them() -> None:
    strategy = FixedQueues(tuple(queues(2)))
    assert allocate(strategy, "a", queues(8), ["a", "b"]) == queues(2)


def test_who_is_no_member_gets_nothing() -> None:
    assert allocate(averagely, "stranger", queues(4), ["a"]) == []


def test_a_member_that_is_listed_twice_counts_once() -> None:
    """A broker lists a client twice that has made a new connection, until it notices."""
    four = queues(4)
    assert allocate(averagely, "x", four, ["x", "x"]) == four
    assert allocate(averagely, "x", four, ["y", "x", "x"]) == four[:2]
    assert allocate(averagely, "y", four, ["y", "x", "x"]) == four[2:]
