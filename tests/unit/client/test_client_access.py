"""Our client at servers with access control: whatever it sends, it signs, to name servers too."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    Credentials,
    Message,
    ReceivedMessage,
    TransactionState,
)
from flintmq.broker import Broker
from flintmq.client.errors import AccessDeniedError
from flintmq.namesrv import NamesrvConfig, run_namesrv
from tests.kits.broker.access_kit import write_accounts
from tests.kits.broker.broker_kit import eventually, site

ACCOUNTS: Final = """
accounts:
  - accessKey: operator
    secretKey: operator-secret
    admin: true
  - accessKey: shopKey1
    secretKey: shop-secret
    topicPerms: [orders=PUB|SUB, TestCluster_REPLY_TOPIC=PUB]
    groupPerms: [readers=SUB, ordered=SUB, pollers=SUB]
"""
SHOP: Final = Credentials(access_key="shopKey1", secret_key="shop-secret")
COUNT: Final = 8


@dataclass(frozen=True, slots=True)
class Guarded:
    """A name server and a broker, both with access control."""

    namesrv: str
    broker: Broker

    @property
    def denied(self) -> str:
        access = self.broker.context.access
        assert access is not None
        return access.runtime_info()["aclDeniedReasons"]


@contextlib.asynccontextmanager
async def guarded(root: Path) -> AsyncIterator[Guarded]:
    acl_file = write_accounts(root / "home", ACCOUNTS)
    credentials = root / "tools.yml"
    credentials.write_text("accessKey: operator\nsecretKey: operator-secret\n")
    names = NamesrvConfig(
        listen_port=0,
        kv_config_path=root / "kv.json",
        config_store_path=root / "changes.properties",
        acl_enable=True,
        acl_file=str(acl_file),
    )
    settings = {"aclEnable": "true", "aclFile": acl_file, "aclCredentialsFile": credentials}
    async with (
        run_namesrv(names) as namesrv,
        site(root / "store", namesrvAddr=namesrv.address, **settings) as here,
    ):
        for topic in ("orders", "secrets"):
            here.broker.context.topics.ensure(topic, 4)
        await eventually(lambda: namesrv.routes.route("secrets") is not None)
        yield Guarded(namesrv.address, here.broker)


class Bank:
    """Decides about transactions as it is told."""

    async def execute(self, message: Message, argument: object) -> TransactionState:
        return TransactionState.COMMIT

    async def check(self, message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT


async def test_everything_that_a_client_sends_is_signed(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        common: dict[str, Any] = {"namesrv": here.namesrv, "credentials": SHOP}
        consuming = common | {
            "subscriptions": {"orders": "*"},
            "consume_from": ConsumeFrom.FIRST_OFFSET,
        }
        async with AsyncProducer(
            **common, group="senders", transaction_listener=Bank(), trace=True
        ) as producer:
            for number in range(COUNT):
                await producer.send(Message(topic="orders", body=b"%d" % number))
            await producer.send_batch([Message(topic="orders", body=b"batch")] * 2)
            await producer.send_one_way(Message(topic="orders", body=b"one-way"))
            await producer.send_in_transaction(Message(topic="orders", body=b"transaction"))
            got: list[bytes] = []

            async def handle(message: ReceivedMessage) -> None:
                if message.body == b"0" and message.reconsume_times == 0:
                    raise ValueError("to be given back")
                got.append(message.body)
                if message.body == b"question":
                    await producer.reply(message, b"answer")

            async with AsyncPushConsumer(**consuming, group="readers", handler=handle) as consumer:
                await eventually(lambda: len(got) >= COUNT + 3)
                asked = await producer.request(Message(topic="orders", body=b"question"))
                assert asked.body == b"answer"
                assert consumer.group == "readers"
            in_order: list[bytes] = []

            async def keep(message: ReceivedMessage) -> None:
                in_order.append(message.body)

            async with AsyncPushConsumer(**consuming, group="ordered", handler=keep, orderly=True):
                await eventually(lambda: len(in_order) >= COUNT + 5)
        async with AsyncLitePullConsumer(**consuming, group="pollers") as poller:
            polled = 0
            while polled < COUNT + 5:
                polled += len(await poller.poll(timeout_ms=1000))
        assert here.denied == ""


async def test_a_denial_says_why(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        async with AsyncProducer(
            namesrv=here.namesrv, group="senders", credentials=SHOP
        ) as producer:
            with pytest.raises(AccessDeniedError, match="No default permission for topic:secrets"):
                await producer.send(Message(topic="secrets", body=b"x"))
            # It would be denied again, so it is not tried again.
            assert here.denied == "noPermission:1"
        forged = Credentials(access_key="shopKey1", secret_key="another")
        for credentials in (forged, None):
            words = "signature failed" if credentials else "No accessKey is configured"
            async with AsyncProducer(
                namesrv=here.namesrv, group="senders", credentials=credentials
            ) as producer:
                with pytest.raises(Exception, match=words) as caught:
                    await producer.send(Message(topic="orders", body=b"x"))
                assert "secret" not in str(caught.value)
