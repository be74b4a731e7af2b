"""Every request that a server handles has a class, and no other request has one."""

from pathlib import Path
from typing import Any

import pytest

from flintmq.access import access_control
from flintmq.access.request_classes import JUDGED_SIZE_MAX, REQUEST_CLASSES, Access
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import ONE_WAY_FLAG, Command, decode_command, encode_command
from flintmq.format.wire.frame import FrameDecoder, HeaderType
from flintmq.format.wire.signature import signed_fields
from flintmq.namesrv import NamesrvConfig, run_namesrv
from flintmq.remoting import RemotingServer
from tests.kits.broker.access_kit import (
    ACCOUNTS,
    ADMIN,
    SECRETS,
    USER,
    guarded_site,
    write_accounts,
)
from tests.kits.broker.broker_kit import site
from tests.kits.broker.gate_kit import all_requests, request_of
from tests.kits.broker.hostile_peer import MemoryTransport, fed_connection

UNKNOWN_CODE = 9999


def answers_to(
    server: RemotingServer, requests: list[dict[str, Any]], header_type: HeaderType
) -> dict[int, Command]:
    """Feed requests to one connection at once; return the answers by the number of the request."""
    connection = fed_connection(server)
    transport = MemoryTransport(connection, 5000)
    connection.connection_made(transport)
    frames = [
        encode_command(Command(opaque=number, serialize_type=header_type, **one))
        for number, one in enumerate(requests)
    ]
    connection.data_received(b"".join(frames))
    assert not transport.is_closing()
    assert not connection.tasks, "a request was handled"
    found = map(decode_command, FrameDecoder().frames(b"".join(transport.written)))
    return {one.opaque: one for one in found if one.is_response}


def signed(request: dict[str, Any], secret: str, access_key: str = USER) -> dict[str, Any]:
    fields = signed_fields(
        request["ext_fields"], request["body"], access_key=access_key, secret_key=secret
    )
    return {**request, "ext_fields": fields}


async def test_every_request_of_broker_and_name_server_has_a_class(tmp_path: Path) -> None:
    names = NamesrvConfig(
        listen_port=0, kv_config_path=tmp_path / "kv", config_store_path=tmp_path / "own"
    )
    async with site(tmp_path / "store") as here, run_namesrv(names) as namesrv:
        served = here.broker.server.requests.keys() | namesrv.server.requests.keys()
    assert served == REQUEST_CLASSES.keys()


def assert_denied(
    server: RemotingServer, requests: list[dict[str, Any]], header_type: HeaderType, words: str
) -> None:
    answers = answers_to(server, requests, header_type)
    owed = {number for number, one in enumerate(requests) if not one.get("flag")}
    assert answers.keys() == owed
    assert {one.code for one in answers.values()} == {ResponseCode.SYSTEM_ERROR}
    remark = f"org.apache.rocketmq.acl.common.AclException: {words}"
    assert {one.remark for one in answers.values()} == {remark}
    assert {one.serialize_type for one in answers.values()} == {header_type}


def all_with_unknown(server: RemotingServer) -> list[dict[str, Any]]:
    """Return requests of all codes, again of the codes with a fast way, and an unknown one."""
    codes = sorted(server.requests)
    again = [request_of(code) for code, one in server.requests.items() if one.bulk] * 3
    unknown = [request_of(UNKNOWN_CODE), request_of(UNKNOWN_CODE, flag=ONE_WAY_FLAG)]
    return [*all_requests(codes), *again, *unknown]


@pytest.mark.parametrize("header_type", HeaderType)
async def test_no_request_of_a_broker_is_handled_without_credentials(
    header_type: HeaderType, tmp_path: Path
) -> None:
    async with guarded_site(tmp_path) as here:
        server = here.broker.server
        requests = all_with_unknown(server)
        assert len(requests) > 4 * 60
        assert_denied(server, requests, header_type, "No accessKey is configured")
        forged = [signed(one, "no-secret") for one in requests]
        words = f"Check signature failed for accessKey={USER}"
        assert_denied(server, forged, header_type, words)
        context = here.broker.context
        assert "T" not in context.topics
        counted = context.access.runtime_info() if context.access is not None else {}
        assert counted["aclDeniedCount"] == str(2 * len(requests))
        each = len(requests)
        assert counted["aclDeniedReasons"] == f"noAccessKey:{each},wrongSignature:{each}"


@pytest.mark.parametrize("header_type", HeaderType)
async def test_no_request_of_a_name_server_is_handled_without_credentials(
    header_type: HeaderType, tmp_path: Path
) -> None:
    config = NamesrvConfig(
        listen_port=0,
        kv_config_path=tmp_path / "kv",
        config_store_path=tmp_path / "own",
        acl_enable=True,
        acl_file=str(write_accounts(tmp_path)),
    )
    async with run_namesrv(config) as namesrv:
        requests = all_with_unknown(namesrv.server)
        assert len(requests) > 4 * 19
        assert_denied(namesrv.server, requests, header_type, "No accessKey is configured")


@pytest.mark.parametrize("header_type", HeaderType)
async def test_administration_is_denied_to_who_is_no_administrator(
    header_type: HeaderType, tmp_path: Path
) -> None:
    admin = [code for code, one in REQUEST_CLASSES.items() if one.access is Access.ADMIN]
    async with guarded_site(tmp_path) as here:
        requests = [signed(one, SECRETS[USER]) for one in all_requests(sorted(admin))]
        answers = answers_to(here.broker.server, requests, header_type)
        assert len(answers) == 2 * len(admin)
        for number, answer in answers.items():
            words = f"Need admin permission for request code={requests[number]['code']}, "
            assert (answer.remark or "").endswith(f"{words}but accessKey={USER} is not")


@pytest.mark.parametrize(
    "code",
    [RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.CHECK_CLIENT_CONFIG],
)
async def test_no_more_is_read_of_a_body_than_a_turn_has_time_for(
    code: RequestCode, tmp_path: Path
) -> None:
    """Four MiB were, on the loop and in one go, to find out whether a request is admitted."""
    request = {**request_of(code), "body": b'{"clientID":"c","filler":"'.ljust(JUDGED_SIZE_MAX + 1)}
    async with guarded_site(tmp_path) as here:
        (answer,) = answers_to(
            here.broker.server, [signed(request, SECRETS[USER])], HeaderType.JSON
        ).values()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"at most {JUDGED_SIZE_MAX} are read" in (answer.remark or "")


async def test_an_unknown_request_of_an_account_is_not_supported(tmp_path: Path) -> None:
    async with guarded_site(tmp_path) as here:
        requests = [signed(request_of(UNKNOWN_CODE), SECRETS[USER])]
        (answer,) = answers_to(here.broker.server, requests, HeaderType.JSON).values()
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@pytest.mark.parametrize("grants", ["false", "true"])
async def test_a_request_without_a_class_is_not_handled_even_if_somebody_could(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grants: str
) -> None:
    """Whoever adds a processor and forgets its class has opened nothing, to no address either."""
    code = RequestCode.GET_BROKER_CONFIG
    classes = {one: given for one, given in REQUEST_CLASSES.items() if one != code}
    monkeypatch.setattr(access_control, "REQUEST_CLASSES", classes)
    text = ACCOUNTS.replace("RemoteAddresses: []", "RemoteAddresses: ['*']")
    async with guarded_site(tmp_path, text, aclWhiteListGrants=grants) as here:
        requests = [
            signed(request_of(code), SECRETS[ADMIN], access_key=ADMIN),
            request_of(code),
            request_of(RequestCode.GET_BROKER_RUNTIME_INFO),
        ]
        answers = answers_to(here.broker.server, requests, HeaderType.JSON)
    assert answers[0].code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answers[1].code != ResponseCode.SUCCESS
    assert (answers[2].code == ResponseCode.SUCCESS) == (grants == "true")


def test_the_classes_of_the_requests_that_change_much() -> None:
    for code in (RequestCode.REGISTER_BROKER, RequestCode.UPDATE_BROKER_CONFIG):
        assert REQUEST_CLASSES[code].access is Access.ADMIN
    for code in (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2):
        assert REQUEST_CLASSES[code].access is Access.PUBLISH
