"""A name server with access control: brokers register as an administrator, clients sign."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flintmq.access.access_errors import AccessFileError
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.namesrv import RouteRequest
from flintmq.namesrv import Namesrv, NamesrvConfig, run_namesrv
from flintmq.remoting import RemotingClient
from tests.kits.broker.access_kit import ADMIN, SECRETS, USER, signer, write_accounts
from tests.kits.broker.broker_kit import eventually, site
from tests.kits.broker.remoting_kit import PATIENT_MS


@contextlib.asynccontextmanager
async def guarded_namesrv(root: Path) -> AsyncIterator[Namesrv]:
    config = NamesrvConfig(
        listen_port=0,
        kv_config_path=root / "kv.json",
        config_store_path=root / "changes.properties",
        acl_enable=True,
        acl_file=str(write_accounts(root / "home")),
        acl_reload_interval_ms=20,
    )
    async with run_namesrv(config) as running:
        yield running


def write_credentials(path: Path, access_key: str) -> Path:
    path.write_text(f"accessKey: {access_key}\nsecretKey: {SECRETS[access_key]}\n")
    return path


async def test_a_broker_registers_with_the_account_of_its_file(tmp_path: Path) -> None:
    credentials = write_credentials(tmp_path / "tools.yml", ADMIN)
    async with (
        guarded_namesrv(tmp_path) as namesrv,
        site(
            tmp_path / "store", namesrvAddr=namesrv.address, aclCredentialsFile=credentials
        ) as here,
        RemotingClient(prepare=signer(USER)) as user,
        RemotingClient() as nobody,
    ):
        assert namesrv.routes.any_address() == here.broker.address
        code, header = RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequest(topic="TBW102")
        answer = await user.call(namesrv.address, code, header, timeout_ms=PATIENT_MS)
        assert answer.code == ResponseCode.SUCCESS
        answer = await nobody.call(namesrv.address, code, header, timeout_ms=PATIENT_MS)
        assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")
        # What an operator does needs an administrator.
        code = RequestCode.GET_NAMESRV_CONFIG
        answer = await user.call(namesrv.address, code, timeout_ms=PATIENT_MS)
        assert "Need admin permission" in (answer.remark or "")


async def test_nobody_else_registers_a_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    credentials = write_credentials(tmp_path / "tools.yml", USER)
    async with guarded_namesrv(tmp_path) as namesrv:
        async with site(tmp_path / "unsigned", namesrvAddr=namesrv.address):
            await eventually(lambda: "No accessKey is configured" in caplog.text)
        async with site(
            tmp_path / "user", namesrvAddr=namesrv.address, aclCredentialsFile=credentials
        ):
            await eventually(lambda: "Need admin permission" in caplog.text)
        assert namesrv.routes.any_address() is None
        assert SECRETS[USER] not in caplog.text


@pytest.mark.parametrize("text", ["", "accessKey: someKey1", "accessKey: [", "- a list"])
async def test_credentials_that_are_none_end_a_start(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text(text)
    with pytest.raises(AccessFileError, match=r"tools\.yml"):
        async with site(tmp_path / "store", aclCredentialsFile=path):
            pass
