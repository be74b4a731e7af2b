"""A broker with access control: who may do what, and how accounts change while it runs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from flintmq.access.access_errors import DeniedError
from flintmq.broker.sending.batch_bodies import UNPACKED_AT_ONCE_MAX
from flintmq.format.compression import CompressionType, compress
from flintmq.format.stored.batch import BatchItem, encode_batch
from flintmq.format.sys_flag import COMPRESSED
from flintmq.format.wire.bodies.dialect import dumps_body, loads_body
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.access import (
    AccessVersionResponse,
    DeleteAccountRequest,
    UpdateAccountRequest,
    UpdateWhiteAddressesRequest,
)
from flintmq.format.wire.headers.offsets import UpdateConsumerOffsetRequest
from flintmq.format.wire.headers.query import QueryMessageRequest, ViewMessageRequest
from flintmq.format.wire.headers.send_back import SendBackRequest
from flintmq.format.wire.headers.table import HEADERS
from flintmq.format.wire.headers.transaction import EndTransactionRequest
from flintmq.format.wire.signature import signed_fields
from flintmq.remoting.received_request import ReceivedRequest
from flintmq.remoting.request_table import admit_all
from flintmq.settings.property_files import ConfigError
from tests.kits.broker.access_kit import (
    ACCOUNTS,
    ADMIN,
    HOSTED,
    SECRETS,
    USER,
    client_of,
    guarded_site,
    write_accounts,
)
from tests.kits.broker.broker_kit import Site, Wire, consumer, eventually, site
from tests.kits.broker.gate_kit import plain_fields
from tests.kits.broker.hostile_peer import MemoryTransport, fed_connection

PREPARED: Final = 4
JAVA_NAME: Final = "org.apache.rocketmq.acl.common.AclException"


def is_denied(answer: Command) -> bool:
    return answer.code == ResponseCode.SYSTEM_ERROR and JAVA_NAME in (answer.remark or "")


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask a broker again and again until it says so."""
    async with asyncio.timeout(20):
        while not await condition():
            pass


async def make_topics(here: Site, *names: str) -> None:
    for name in names:
        here.broker.context.topics.ensure(name, 4)
    await here.broker.context.topics.keeper.save_in_thread()


def admits(
    here: Site, access_key: str, code: int, fields: Mapping[str, str], body: bytes = b""
) -> bool:
    """Return whether a signed request comes through the gate."""
    access = here.broker.context.access
    assert access is not None
    signed = signed_fields(fields, body, access_key=access_key, secret_key=SECRETS[access_key])
    connection = fed_connection(here.broker.server)
    connection.connection_made(MemoryTransport(connection, 5000))
    try:
        access.admit(
            connection, ReceivedRequest.of(Command(code=code, ext_fields=signed, body=body))
        )
    except DeniedError:
        return False
    return True


def with_names(code: int, **names: str) -> dict[str, str]:
    """Return the fields of a request with some of them set, by the names they have in headers."""
    kind: Any = HEADERS[code].request
    fields = plain_fields(kind)
    by_name = {"producer_group": "a", "topic": "b", "properties": "i"}
    wire = set(kind.wire_fields())
    for name, value in names.items():
        parts = name.split("_")
        camel = parts[0] + "".join(map(str.capitalize, parts[1:]))
        fields[camel if camel in wire else by_name[name]] = value
    return fields


SENDS: Final = (10, 310, 320, 324, 325)
SUBSCRIBES: Final = (11, 361, 12, 321, 14, 15)
READS: Final = (29, 30, 31, 32, 202, 300, 351)
GROUP_READS: Final = (38, 203, 208)


async def test_topics_and_groups_are_checked_for_every_request_that_names_them(
    tmp_path: Path,
) -> None:
    async with guarded_site(tmp_path) as here:
        for code in SENDS:
            sendable = {
                topic: admits(here, USER, code, with_names(code, topic=topic))
                for topic in ("orders", "inbox", "outbox", "hidden", "unknown", "%RETRY%consumers")
            }
            assert [topic for topic, is_allowed in sendable.items() if is_allowed] == [
                *("orders", "inbox", "%RETRY%consumers")
            ], code
            assert not admits(here, USER, code, with_names(code, topic="%RETRY%others"))
            assert admits(here, USER, code, with_names(code, topic="RMQ_SYS_TRACE_TOPIC"))
        for code in SUBSCRIBES:
            has_group = "consumerGroup" in plain_fields(HEADERS[code].request)
            group = {"consumer_group": "consumers"} if has_group else {}
            for topic, is_allowed in {"orders": True, "outbox": True, "inbox": False}.items():
                fields = with_names(code, topic=topic, **group)
                assert admits(here, USER, code, fields) == is_allowed, (code, topic)
            if has_group:
                fields = with_names(code, topic="orders", consumer_group="others")
                assert not admits(here, USER, code, fields), code
        for code in READS:
            for topic, is_allowed in {"orders": True, "inbox": True, "hidden": False}.items():
                assert admits(here, USER, code, with_names(code, topic=topic)) == is_allowed, code
        for code in GROUP_READS:
            assert admits(here, USER, code, with_names(code, consumer_group="consumers"))
            assert not admits(here, USER, code, with_names(code, consumer_group="others"))
        assert not admits(here, USER, 321, with_names(321, topic="orders", consumer_group="others"))


async def test_names_in_bodies_are_checked_too(tmp_path: Path) -> None:
    queue = {"brokerName": "broker-a", "queueId": 0}
    async with guarded_site(tmp_path) as here, client_of(here, USER) as user:
        for group, topic, is_allowed in (
            ("consumers", "orders", True),
            ("consumers", "inbox", False),
            ("others", "orders", False),
        ):
            answer = await user.heartbeat(consumer=consumer(group, topic))
            assert is_denied(answer) != is_allowed
            lock = {"consumerGroup": group, "clientId": "c", "mqSet": [{**queue, "topic": topic}]}
            for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
                assert admits(here, USER, code, {}, dumps_body(lock)) == is_allowed
            subscription = {"topic": topic, "subString": "*", "subVersion": 1}
            check = {"clientId": "c", "group": group, "subscriptionData": subscription}
            code = RequestCode.CHECK_CLIENT_CONFIG
            assert admits(here, USER, code, {}, dumps_body(check)) == is_allowed
        assert not is_denied(await user.heartbeat(producer="any group of producers"))
        # A body that is none leads to a refusal, and not to the processor.
        answer = await user.call(RequestCode.HEART_BEAT, None, b"no JSON")
        assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_a_message_does_not_reach_other_topics_by_its_properties(tmp_path: Path) -> None:
    async with guarded_site(tmp_path) as here:
        for names, is_allowed in {"orders": True, "orders,hidden": False, "%LMQ%x": False}.items():
            text = f"KEYS\x01k\x02INNER_MULTI_DISPATCH\x01{names}\x02"
            fields = with_names(310, topic="orders", properties=text)
            assert admits(here, USER, 310, fields) == is_allowed
            batch = with_names(320, topic="orders")
            assert admits(here, USER, 320, batch, b"head" + text.encode()) == is_allowed
        again = "INNER_MULTI_DISPATCH\x01orders\x02INNER_MULTI_DISPATCH\x01hidden"
        assert not admits(here, USER, 310, with_names(310, topic="orders", properties=again))


@pytest.mark.parametrize("size", [10, UNPACKED_AT_ONCE_MAX + 1])
async def test_a_batch_that_is_compressed_hides_no_other_topic(tmp_path: Path, size: int) -> None:
    """Neither one that is unpacked at once nor one that a thread unpacks."""
    plain = BatchItem(0, bytes(size), b"")
    hiding = BatchItem(
        0, bytes(size), b"INNER_MULTI_DISPATCH\x01hidden\x02INNER_MULTI_QUEUE_OFFSET\x010\x02"
    )
    async with (
        guarded_site(tmp_path, enableMultiDispatch="true") as here,
        client_of(here, USER) as user,
    ):
        await make_topics(here, "orders", "hidden")
        for items, code in (
            ([plain, hiding], ResponseCode.NO_PERMISSION),
            ([plain, plain], ResponseCode.SUCCESS),
        ):
            answer = await user.send_raw(
                "orders",
                compress(encode_batch(items), CompressionType.ZLIB),
                code=RequestCode.SEND_BATCH_MESSAGE,
                batch=True,
                sys_flag=COMPRESSED,
            )
            assert answer.code == code
        assert len(await user.pull("orders")) == 2


async def test_a_message_that_is_named_by_its_place_belongs_to_its_topic(tmp_path: Path) -> None:
    async with (
        guarded_site(tmp_path) as here,
        client_of(here, ADMIN) as admin,
        client_of(here, USER) as user,
    ):
        await make_topics(here, "orders", "hidden", "inbox")
        for topic, may_read, may_end in (
            ("orders", True, True),
            ("hidden", False, False),
            ("inbox", False, True),
        ):
            sent = await admin.send(topic)
            place = int(sent.msg_id[-16:], 16)
            view = ViewMessageRequest(offset=place)
            answer = await user.call(RequestCode.VIEW_MESSAGE_BY_ID, view)
            assert is_denied(answer) != may_read
            back = SendBackRequest(group="consumers", offset=place, delay_level=0)
            answer = await user.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)
            assert is_denied(answer) != may_read
            half = await admin.send(
                topic, sys_flag=PREPARED, properties={"TRAN_MSG": "true", "PGROUP": "producers"}
            )
            end = EndTransactionRequest(
                producer_group="producers",
                tran_state_table_offset=half.queue_offset,
                commit_log_offset=int(half.msg_id[-16:], 16),
                commit_or_rollback=8,
                msg_id=half.msg_id,
            )
            answer = await user.call(RequestCode.END_TRANSACTION, end)
            assert is_denied(answer) != may_end
            # Until it is decided, a half message is as secret as what it becomes.
            view = ViewMessageRequest(offset=int(half.msg_id[-16:], 16))
            assert is_denied(await user.call(RequestCode.VIEW_MESSAGE_BY_ID, view)) != may_read


async def test_sends_and_pulls_of_the_fast_way_are_checked_each_time(tmp_path: Path) -> None:
    async with (
        guarded_site(tmp_path) as here,
        client_of(here, USER) as user,
        client_of(here, USER, "forged-secret") as forger,
    ):
        await make_topics(here, "orders")
        for _ in range(3):
            await asyncio.gather(*(user.send("orders") for _ in range(10)))
            assert is_denied(await forger.send_raw("orders"))
            assert is_denied(await user.send_raw("hidden"))
            assert await user.pull("orders")
            assert is_denied(await forger.pull_raw("orders"))
            assert is_denied(await user.pull_raw("orders", consumer_group="others"))
        assert here.broker.context.store.max_offset_in_queue("orders", 0) == 30


async def test_older_clients_do_not_sign_that_they_query_a_unique_key(tmp_path: Path) -> None:
    async with guarded_site(tmp_path) as here, client_of(here, None) as client:
        await make_topics(here, "orders")
        query = QueryMessageRequest(
            topic="orders", key="k", max_num=1, begin_timestamp=0, end_timestamp=1
        )
        for is_signed in (True, False):
            flag = {"_UNIQUE_KEY_QUERY": "true"}
            fields = query.encode() | (flag if is_signed else {})
            signed = signed_fields(fields, b"", access_key=USER, secret_key=SECRETS[USER])

            def prepare(command: Command, fields: dict[str, str] = signed | flag) -> None:
                command.ext_fields = fields

            client.client._prepare = prepare
            answer = await client.call(RequestCode.QUERY_MESSAGE)
            assert answer.code == ResponseCode.QUERY_NOT_FOUND, answer


# -- addresses -----------------------------------------------------------------------------------


def with_global_white(addresses: str) -> str:
    return ACCOUNTS.replace("Addresses: []", f"Addresses: [{addresses}]")


async def test_a_white_list_restricts_and_grants_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = with_global_white("'127.0.0.*'")
    async with (
        guarded_site(tmp_path, text) as here,
        client_of(here, None) as nobody,
        client_of(here, HOSTED) as hosted,
    ):
        assert "aclWhiteListGrants=false" in caplog.text
        assert is_denied(await nobody.send_raw("orders"))
        answer = await hosted.send_raw("orders")
        assert f"{HOSTED} may not be used from 127.0.0.1" in (answer.remark or "")
        write_accounts(tmp_path / "home", text.replace("10.1.2.*", "127.0.0.{1,2}"))
        access = here.broker.context.access
        assert access is not None
        await access.reload()
        assert (await hosted.send_raw("orders")).code == ResponseCode.SUCCESS
        async with client_of(here, HOSTED, "forged-secret") as forger:
            assert is_denied(await forger.send_raw("orders"))


async def test_a_white_list_grants_as_in_rocketmq_if_a_setting_says_so(tmp_path: Path) -> None:
    text = ACCOUNTS.replace("10.1.2.*", "127.0.0.1")
    async with (
        guarded_site(tmp_path, text, aclWhiteListGrants="true") as here,
        client_of(here, None) as nobody,
        client_of(here, HOSTED, "any-secret") as hosted,
    ):
        assert is_denied(await nobody.send_raw("orders"))
        assert (await hosted.send_raw("orders")).code == ResponseCode.SUCCESS
        write_accounts(tmp_path / "home", with_global_white("127.0.0.1"))
        access = here.broker.context.access
        assert access is not None
        await access.reload()
        assert (await nobody.send_raw("orders")).code == ResponseCode.SUCCESS
        # Access control itself is never open to an address alone.
        assert is_denied(await nobody.call(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG))


# -- changes while the broker runs ---------------------------------------------------------------


async def test_a_changed_file_holds_without_a_restart_while_messages_are_sent(
    tmp_path: Path,
) -> None:
    async with guarded_site(tmp_path) as here, client_of(here, USER) as user:
        await make_topics(here, "orders", "fresh")
        await user.send("orders")
        assert is_denied(await user.send_raw("fresh"))
        allowed = ACCOUNTS.replace("inbox=PUB", "fresh=PUB")
        path = write_accounts(tmp_path / "home", allowed)

        async def is_allowed() -> bool:
            assert not is_denied(await user.send_raw("orders")), "others are not disturbed"
            return not is_denied(await user.send_raw("fresh"))

        await until(is_allowed)
        path.write_text("accounts: [")
        access = here.broker.context.access
        assert access is not None
        await access.reload()
        assert await is_allowed()
        write_accounts(tmp_path / "home", ACCOUNTS.replace(SECRETS[USER], "new-user-secret"))

        async def is_locked_out() -> bool:
            return is_denied(await user.send_raw("orders"))

        await until(is_locked_out)


async def change(wire: Wire, **more: Any) -> Command:
    header = UpdateAccountRequest(**({"access_key": "newUser1"} | more))
    return await wire.call(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)


async def test_accounts_are_changed_by_administrators(tmp_path: Path) -> None:
    async with guarded_site(tmp_path) as here, client_of(here, ADMIN) as admin:
        await make_topics(here, "orders")
        async with client_of(here, "newUser1", "new-secret") as new:
            assert is_denied(await new.send_raw("orders"))
            said = {"topic_perms": "orders=PUB,inbox=SUB", "default_group_perm": "SUB"}
            answer = await change(admin, secret_key="new-secret", **said)
            assert answer.code == ResponseCode.SUCCESS
            await new.send("orders")
            assert is_denied(await change(new, admin=True))
            assert (await change(admin, topic_perms="inbox=SUB")).code == ResponseCode.SUCCESS
            assert is_denied(await new.send_raw("orders"))
            gone = DeleteAccountRequest(access_key="newUser1")
            answer = await admin.call(RequestCode.DELETE_ACL_CONFIG, gone)
            assert answer.code == ResponseCode.SUCCESS
            assert "No acl config for newUser1" in ((await new.send_raw("orders")).remark or "")
            answer = await admin.call(RequestCode.DELETE_ACL_CONFIG, gone)
            assert answer.code == ResponseCode.DELETE_ACL_CONFIG_FAILED


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"secret_key": "short"},
        {"secret_key": "new-secret", "access_key": "short"},
        {"secret_key": "new-secret", "topic_perms": "orders"},
        {"secret_key": "new-secret", "white_remote_address": "nowhere"},
    ],
)
async def test_a_wrong_account_is_refused_and_nothing_is_written(
    more: dict[str, Any], tmp_path: Path
) -> None:
    async with guarded_site(tmp_path) as here, client_of(here, ADMIN) as admin:
        path = tmp_path / "home" / "conf" / "plain_acl.yml"
        before = path.read_bytes()
        answer = await change(admin, **more)
        assert answer.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        assert "new-secret" not in (answer.remark or "")
        assert path.read_bytes() == before


async def test_white_lists_are_changed_in_access_files_only(tmp_path: Path) -> None:
    async with guarded_site(tmp_path) as here, client_of(here, ADMIN) as admin:
        code = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
        header = UpdateWhiteAddressesRequest(global_white_addrs="10.9.9.*, 10.9.8.{1,2}")
        assert (await admin.call(code, header)).code == ResponseCode.SUCCESS
        shown = await admin.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        assert shown["globalWhiteAddrs"] == ["10.9.9.*", "10.9.8.{1,2}"]
        outside = tmp_path / "outside.yml"
        for more in (
            {"global_white_addrs": "nowhere"},
            {"global_white_addrs": "10.9.9.*", "acl_file_full_path": str(outside)},
        ):
            answer = await admin.call(code, UpdateWhiteAddressesRequest(**more))
            assert answer.code == ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        assert not outside.exists()


async def test_no_answer_has_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with guarded_site(tmp_path) as here, client_of(here, ADMIN) as admin:
        await change(admin, secret_key="new-secret")
        shown = await admin.call(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        accounts = loads_body(shown.body)["plainAccessConfigs"]
        assert [one["accessKey"] for one in accounts] == [ADMIN, USER, HOSTED, "newUser1"]
        assert accounts[1]["topicPerms"][0] == "orders=PUB|SUB"
        answers = [shown.body.decode()]
        for code in (
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
            RequestCode.GET_BROKER_CONFIG,
            RequestCode.GET_BROKER_RUNTIME_INFO,
        ):
            answer = await admin.call(code)
            assert answer.code == ResponseCode.SUCCESS
            answers += [answer.body.decode(), repr(answer)]
        async with client_of(here, USER, "forged-secret") as forger:
            answers.append(repr(await forger.send_raw("orders")))
        for secret in (*SECRETS.values(), "new-secret", "secretKey"):
            assert not any(secret in one for one in answers)
            assert secret not in caplog.text


async def test_the_settings_that_a_broker_tells_have_no_password(tmp_path: Path) -> None:
    keys = ("tls.server.keyPassword", "tls.client.keyPassword")
    hidden = dict.fromkeys(keys, "hush-hush") | {"tls.server.mode": "disabled"}
    async with guarded_site(tmp_path, **hidden) as here, client_of(here, ADMIN) as admin:
        told = await admin.call(RequestCode.GET_BROKER_CONFIG)
        assert b"aclEnable=true" in told.body
        assert b"hush-hush" not in told.body


async def test_versions_tell_how_often_the_files_were_changed(tmp_path: Path) -> None:
    async with guarded_site(tmp_path) as here, client_of(here, ADMIN) as admin:
        code = RequestCode.GET_BROKER_CLUSTER_ACL_INFO
        for counter in (0, 1):
            answer = await admin.call(code)
            header = AccessVersionResponse.decode(answer.ext_fields)
            assert loads_body(header.version.encode())["counter"] == counter
            path = str(tmp_path / "home" / "conf" / "plain_acl.yml")
            by_path = loads_body(header.all_acl_file_version.encode())
            assert by_path[path]["counter"] == counter
            assert (header.broker_name, header.cluster_name) == ("broker-a", "TestCluster")
            assert header.broker_addr == here.broker.address
            await change(admin, secret_key="new-secret")


# -- settings ------------------------------------------------------------------------------------


async def test_without_access_control_its_requests_fail_and_all_others_are_admitted(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        assert here.broker.server.requests.admit is admit_all
        wire = await here.client()
        await wire.send("orders")
        failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        answer = await change(wire, secret_key="new-secret")
        assert (answer.code, answer.remark) == (failed, "access control is off: aclEnable=false")
        answer = await wire.call(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_a_broker_whose_accounts_cannot_be_read_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="aclFile"):
        async with site(tmp_path, aclEnable="true"):
            pass
    with pytest.raises(Exception, match="no such file"):
        async with site(tmp_path, aclEnable="true", aclFile=tmp_path / "none.yml"):
            pass


async def test_denials_are_counted_each_and_logged_now_and_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded_site(tmp_path) as here, client_of(here, None) as nobody:
        header = UpdateConsumerOffsetRequest(
            consumer_group="g", topic="t", queue_id=0, commit_offset=1
        )
        for _ in range(50):
            await nobody.client.tell(here.broker.address, 15, header, timeout_ms=3000)
        access = here.broker.context.access
        assert access is not None
        await eventually(lambda: access.runtime_info()["aclDeniedCount"] == "50")
        lines = [one for one in caplog.records if "request denied" in one.message]
        assert 1 <= len(lines) < 50
        async with client_of(here, ADMIN) as admin:
            shown = await admin.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
            assert shown["table"]["aclDeniedReasons"] == "noAccessKey:50"
