"""Accounts of a server with access control, and clients that sign as one of them."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from flintmq.format.wire.command import Command
from flintmq.format.wire.signature import signed_fields
from flintmq.remoting import RemotingClient
from tests.kits.broker.broker_kit import Site, Wire, site

ADMIN: Final = "adminKey"
USER: Final = "userKey1"
HOSTED: Final = "hostedKey"
SECRETS: Final = {ADMIN: "admin-secret", USER: "user-secret", HOSTED: "hosted-secret"}
ACCOUNTS: Final = f"""
globalWhiteRemoteAddresses: []
accounts:
  - accessKey: {ADMIN}
    secretKey: {SECRETS[ADMIN]}
    whiteRemoteAddress:
    admin: true
  - accessKey: {USER}
    secretKey: {SECRETS[USER]}
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - orders=PUB|SUB
      - inbox=PUB
      - outbox=SUB
      - hidden=DENY
    groupPerms:
      - consumers=SUB
  - accessKey: {HOSTED}
    secretKey: {SECRETS[HOSTED]}
    whiteRemoteAddress: 10.1.2.*
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
"""


def write_accounts(home: Path, text: str = ACCOUNTS, name: str = "plain_acl.yml") -> Path:
    """Write an access file where a server with this home looks for it."""
    path = home / "conf" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.chmod(0o600)
    temporary.replace(path)
    return path


@contextlib.asynccontextmanager
async def guarded_site(root: Path, text: str = ACCOUNTS, **settings: Any) -> AsyncIterator[Site]:
    """Run a broker with access control."""
    home = root / "home"
    write_accounts(home, text)
    guarded = {"aclEnable": "true", "rocketmqHome": home, "aclReloadIntervalMillis": 20}
    async with site(root / "store", **(guarded | settings)) as here:
        yield here


def signer(access_key: str, secret: str | None = None) -> Callable[[Command], None]:
    """Return what signs requests as an account."""

    def sign(command: Command) -> None:
        command.ext_fields = signed_fields(
            command.ext_fields,
            command.body,
            access_key=access_key,
            secret_key=SECRETS[access_key] if secret is None else secret,
        )

    return sign


@contextlib.asynccontextmanager
async def client_of(
    here: Site, access_key: str | None, secret: str | None = None
) -> AsyncIterator[Wire]:
    """Yield a client that signs as an account, or not at all."""
    prepare = None if access_key is None else signer(access_key, secret)
    async with RemotingClient(prepare=prepare) as client:
        yield Wire(here.broker, client, [])
