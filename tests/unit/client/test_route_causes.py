"""Why there is no route: those causes that take more than one broker, or a broken server."""

import json
from typing import Any

import pytest

from flintmq.client.errors import ClientError, ResponseError, TopicNotExistError
from flintmq.client.routing.route_causes import explain_no_route
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.model.routes import BrokerData, QueueData, TopicRoute
from tests.kits.broker.broker_kit import run

BROKER = {"broker-a": {"cluster": "c", "brokerName": "broker-a", "brokerAddrs": {"0": "h:1"}}}


class Servers:
    """A name server that says what a test wants."""

    addresses = ("127.0.0.1:9876",)

    def __init__(self, brokers: dict[str, Any], error: ClientError | None = None) -> None:
        self._brokers = brokers
        self._error = error

    async def call(self, code: int) -> Command:
        if self._error is not None:
            raise self._error
        if code == RequestCode.GET_BROKER_CLUSTER_INFO:
            body: dict[str, Any] = {"brokerAddrTable": self._brokers, "clusterAddrTable": {}}
        else:
            body = {"topicList": ["payments"]}
        return Command(code=0, body=json.dumps(body).encode())


class Routes:
    """Routes by topic; others are unknown."""

    def __init__(self, **routes: TopicRoute | ClientError) -> None:
        self._routes = routes

    async def fetch(self, topic: str) -> TopicRoute:
        found = self._routes.get(topic, TopicNotExistError("no topic"))
        if isinstance(found, ClientError):
            raise found
        return found


def route(perm: int = 6, write_queues: int = 4, broker_id: int = 0) -> TopicRoute:
    return TopicRoute(
        queues=(
            QueueData(
                broker_name="broker-a",
                read_queue_count=4,
                write_queue_count=write_queues,
                perm=perm,
            ),
        ),
        brokers=(BrokerData(cluster="c", broker_name="broker-a", addresses={broker_id: "h:1"}),),
    )


FAILING = ResponseError.for_code(ResponseCode.SYSTEM_ERROR, "out of order")


@pytest.mark.parametrize(
    ("servers", "routes", "words"),
    [
        (Servers({}), Routes(), "no broker is registered with 127.0.0.1:9876"),
        (Servers({}, FAILING), Routes(), "the name server fails"),
        (Servers(BROKER), Routes(orders=FAILING), "out of order"),
        (Servers(BROKER), Routes(), "none makes topics by itself"),
        (Servers(BROKER), Routes(TBW102=route()), "the model topic takes no messages"),
        (Servers(BROKER), Routes(orders=route(broker_id=1)), "only replicas of broker-a are up"),
        (Servers(BROKER), Routes(orders=route(perm=4)), "may not be written to on broker-a"),
        (Servers(BROKER), Routes(orders=route(write_queues=0)), "no queues to write to"),
        (Servers(BROKER), Routes(orders=route()), "have no master that is up"),
    ],
)
def test_each_cause_has_words_of_its_own(servers: Any, routes: Any, words: str) -> None:
    error = run(explain_no_route("orders", servers, routes))
    assert error.topic == "orders"
    assert words in error.cause
    assert error.next_step
