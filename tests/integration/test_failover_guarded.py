"""Failover by hand where servers have access control and the log goes to slaves by TLS."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from flintmq.namesrv import NamesrvConfig, run_namesrv
from tests.kits.broker.access_kit import ADMIN, SECRETS, client_of, write_accounts
from tests.kits.broker.broker_kit import SMALL, site
from tests.kits.broker.tls_kit import Authority
from tests.kits.processes.serve_command import command

KEYS = {"FLINTMQ_ACCESS_KEY": ADMIN, "FLINTMQ_SECRET_KEY": SECRETS[ADMIN]}


class Done(NamedTuple):
    """What a command has said."""

    code: int | None
    text: str


async def run(*arguments: str, **environment: str) -> Done:
    """Run a command beside the servers of the test."""
    process = await asyncio.create_subprocess_exec(
        *command(*arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | environment,
    )
    output, _ = await process.communicate()
    return Done(process.returncode, output.decode())


def write_file(path: Path, settings: dict[str, Any]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


@asynccontextmanager
async def guarded_name_server(root: Path, access_file: Path) -> AsyncIterator[str]:
    config = NamesrvConfig(
        listen_port=0,
        kv_config_path=root / "kv.json",
        config_store_path=root / "own",
        acl_enable=True,
        acl_file=str(access_file),
    )
    async with run_namesrv(config) as running:
        yield f"127.0.0.1:{running.port}"


async def send(root: Path, *bodies: bytes, **settings: Any) -> None:
    """Run a master for as long as it takes to give it messages."""
    async with site(root, **settings) as here, client_of(here, ADMIN) as wire:
        for body in bodies:
            await wire.send("orders", body)


async def test_roles_are_changed_with_an_account_and_by_tls(tmp_path: Path) -> None:
    access_file = write_accounts(tmp_path / "home")
    credentials = tmp_path / "tools.yml"
    credentials.write_text(f"accessKey: {ADMIN}\nsecretKey: {SECRETS[ADMIN]}\n")
    authority = Authority(tmp_path / "keys")
    one, two = tmp_path / "one", tmp_path / "two"
    guarded: dict[str, Any] = {
        **authority.settings(authority.issue("broker")),
        "brokerName": "broker-a",
        "haUseTLS": "true",
        "tls.client.authServer": "true",
        "aclEnable": "true",
        "aclFile": access_file,
    }
    await send(one, b"both have it", **guarded)
    shutil.copytree(one, two)
    await send(one, b"surplus", **guarded)
    async with guarded_name_server(tmp_path, access_file) as namesrv:
        known = {**SMALL, **guarded}
        old = write_file(tmp_path / "one.conf", {**known, "storePathRootDir": one})
        new = write_file(
            tmp_path / "two.conf",
            {**known, "storePathRootDir": two, "brokerRole": "SLAVE", "brokerId": 1},
        )
        # The name server was changed while the broker ran, so it is in no file of an operator.
        new.with_name("two.conf.changes").write_text(f"namesrvAddr={namesrv}\n")
        refused = await run("broker", "promote", "-c", str(new))
        assert refused.code != 0
        assert "AclException" in refused.text
        done = await run(
            "broker", "promote", "-c", str(new), ROCKETMQ_SERIALIZE_TYPE="JSON", **KEYS
        )
        assert done.code == 0, done.text
        assert "brokerRole=ASYNC_MASTER" in new.read_text()
        assert "serialize" not in new.read_text(), "what the environment says stays there"

        registers = {"namesrvAddr": namesrv, "aclCredentialsFile": credentials}
        async with site(two, **guarded, **registers):
            refused = await run("broker", "rejoin", "-c", str(old), NAMESRV_ADDR=namesrv)
            assert refused.code != 0
            assert "AclException" in refused.text
            # The account of the broker goes before that of whoever runs the command.
            write_file(old, {**known, "storePathRootDir": one, "aclCredentialsFile": credentials})
            found = await run(
                "broker",
                "rejoin",
                "-c",
                str(old),
                NAMESRV_ADDR=namesrv,
                FLINTMQ_ACCESS_KEY="nobody-known",
                FLINTMQ_SECRET_KEY="nothing-known",
            )
            assert "  orders: 1 messages" in found.text, found.text
            done = await run("broker", "rejoin", "-c", str(old), "-n", namesrv, "--yes")
            assert done.code == 0, done.text
            assert "brokerRole=SLAVE" in old.read_text()
    assert b"surplus" in next((one / "recovered").glob("*.cut")).read_bytes()
