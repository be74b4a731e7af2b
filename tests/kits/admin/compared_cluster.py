"""A cluster at which several tools look: a topic with messages, and groups that consume it."""

from contextlib import ExitStack
from typing import Final

from flintmq import (
    ConsumeFrom,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
)
from tests.kits.admin.admin_kit import AdminCli, wait_until

TOPIC: Final = "orders"
GROUP: Final = "readers"
SETTINGS: Final = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": 1 << 20,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "traceTopicEnable": "true",
    "aclEnable": "true",
}
ACCOUNTS: Final = """\
globalWhiteRemoteAddresses:
- 127.0.0.1
accounts:
- accessKey: operator
  secretKey: 12345678
  admin: true
"""
"""Java lets everybody do everything who comes from a white address."""


def set_up(stack: ExitStack, cli: AdminCli) -> list[SendResult]:
    """Give a cluster a topic with messages, a group that consumes, one that is behind."""
    namesrv = cli.namesrv
    # A Java broker of release 5 says that it is up before a name server knows it.
    wait_until(lambda: "broker-a" in cli.run("clusterList").out)
    cli.change("updateTopic", "-t", TOPIC, "-c", "DefaultCluster", "-r", "2", "-w", "2")
    cli.change("updateSubGroup", "-g", GROUP, "-c", "DefaultCluster")
    cli.change("updateSubGroup", "-g", "behind", "-c", "DefaultCluster")
    # mqadmin asks the brokers of the retry topic, which the first member makes.
    cli.change("updateTopic", "-t", "%RETRY%behind", "-c", "DefaultCluster", "-r", "1", "-w", "1")
    for topic in (TOPIC, "%RETRY%behind"):
        wait_until(lambda topic=topic: cli.run("topicRoute", "-t", topic).code == 0)  # type: ignore[misc]
    producer = stack.enter_context(
        Producer(namesrv=namesrv, group="makers", heartbeat_interval_ms=50)
    )
    sent = [
        producer.send(
            Message(topic=TOPIC, body=b"body %d" % n, tag=f"t{n % 2}", keys=[f"k{n}", "all"])
        )
        for n in range(10)
    ]
    got: list[ReceivedMessage] = []
    stack.enter_context(
        PushConsumer(
            namesrv=namesrv,
            group=GROUP,
            subscriptions={TOPIC: "t0 || t1"},
            handler=got.append,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            offset_interval_ms=50,
            client_ip="127.0.0.1",
        )
    )
    with PullConsumer(namesrv=namesrv, group="behind") as pulling:
        for queue in pulling.queues(TOPIC):
            pulling.commit(queue, 2)
    wait_until(lambda: len(got) == len(sent))
    wait_until(lambda: progress(cli) == 0)
    asked = ("producerConnection", "-g", "makers", "-t", TOPIC)
    wait_until(lambda: cli.run(*asked).code == 0)
    return sent


def progress(cli: AdminCli) -> int:
    done = cli.run("consumerProgress", "-g", GROUP, "-o", "json")
    return int(done.envelope["summary"]["diffTotal"]) if done.code == 0 else -1
