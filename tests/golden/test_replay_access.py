"""The recorded conversations with a broker that has access control, answered as they were.

The accounts are those of the recording: an administrator, and a user with rights to one topic.
"""

from pathlib import Path
from typing import Final

import pytest

from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.admin import CreateTopicRequest
from flintmq.format.wire.signature import signed_fields
from tests.kits.broker.access_kit import write_accounts
from tests.kits.golden.recorded_frames import FRAMES, conversation
from tests.kits.golden.replay_rules import Allowed, unexpected
from tests.kits.golden.replaying import Replay, replay

DEADLINE_S: Final = 60
SECRETS: Final = {"goldenAdmin": "golden-secret-1", "goldenUser": "golden-secret-2"}
ACCOUNTS: Final = f"""
accounts:
  - accessKey: goldenAdmin
    secretKey: {SECRETS["goldenAdmin"]}
    admin: true
  - accessKey: goldenUser
    secretKey: {SECRETS["goldenUser"]}
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms: [golden-orders=PUB|SUB]
    groupPerms: [golden-group-acl=SUB]
"""
MAKER: Final = 999
"""The number of a connection that was not recorded."""
ALLOWED: Final = (
    Allowed(
        ".*",
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        r"fields\.(allAclFileVersion|version)",
        "when the file was made, and its path",
    ),
    Allowed(
        ".*",
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        r"body\.plainAccessConfigs\.\d\.secretKey",
        "we tell no secrets",
    ),
)


def acl_run() -> list[str]:
    """Return the conversations in the order in which they were held."""
    names = [path.stem for path in sorted((FRAMES / "json").glob("acl-*.jsonl"))]
    return sorted(names, key=lambda name: conversation(f"json/{name}")[0].line["conn"])


async def make_topics(playing: Replay, names: dict[str, int]) -> None:
    peer = await playing.peer(MAKER)
    for number, (name, count) in enumerate(names.items(), 1):
        header = CreateTopicRequest(
            topic=name, read_queue_nums=count, write_queue_nums=count, perm=6
        )
        fields = signed_fields(
            header.encode(),
            b"",
            access_key="goldenAdmin",
            secret_key=SECRETS["goldenAdmin"],
        )
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        peer.send(Command(code=code, opaque=number, ext_fields=fields))
        assert (await peer.answer(number)).code == ResponseCode.SUCCESS


@pytest.mark.deadline(DEADLINE_S)
@pytest.mark.parametrize("notation", ["json", "rocketmq"])
async def test_accounts_are_allowed_and_denied_what_they_were(
    notation: str, tmp_path: Path
) -> None:
    names = acl_run()
    assert len(names) == 11
    path = write_accounts(tmp_path / "home", ACCOUNTS)
    settings = {"aclEnable": "true", "aclFile": str(path)}

    async with replay(tmp_path, notation, names, settings) as playing:
        playing.secrets.update(SECRETS)
        await make_topics(playing, {"golden-orders": 4, "golden-tx": 4})
        found = [one for name in names for one in await playing.play(name)]
        compared = playing.compared
    assert unexpected(found, ALLOWED) == []
    assert compared >= 85
    assert "newUser1" not in path.read_text()
    assert "10.9.9.*" in path.read_text()
