"""Access control as the official Java clients and tools meet it, releases 4.9.8 and 5.3.3."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.kits.broker.access_kit import write_accounts
from tests.kits.processes.java_clients import (
    HEAP_FLAGS,
    Told,
    find_clients,
    run_scenarios,
    scenario_command,
    went_well,
)
from tests.kits.processes.line_process import LineProcess
from tests.kits.processes.serving import Serving

pytestmark = pytest.mark.interop

ACCOUNTS: Final = """
accounts:
  - accessKey: operator
    secretKey: operator-secret
    admin: true
  - accessKey: userKey1
    secretKey: user-secret
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
    topicPerms: [closed-topic=SUB, later-topic=DENY]
    groupPerms: [closed-group=DENY]
  - accessKey: hostedKey
    secretKey: hosted-secret
    whiteRemoteAddress: 10.1.2.*
    defaultTopicPerm: PUB
"""
SIGNERS: Final = {
    "operator": "operator:operator-secret",
    "user": "userKey1:user-secret",
    "forger": "userKey1:another-secret",
    "stranger": "strangeKey:user-secret",
    "elsewhere": "hostedKey:hosted-secret",
}
SETTINGS: Final = {
    "aclEnable": "true",
    "messageDelayLevel": "1s 1s 1s 2s 3s 4s 5s 6s",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
}
SCENARIOS: Final = (
    *("sync", "async", "oneway", "batch", "auto-created", "delayed", "transaction"),
    *("request-reply", "query", "push", "orderly", "broadcast", "retry", "rebalance"),
    *("lite-pull", "pull", "admin-topics", "admin-groups", "admin-broker"),
)
DENIALS: Final = (
    *("topic:closed-topic", "group:closed-group", "code=26 "),
    *("signature failed for accessKey=userKey1", "No acl config for strangeKey"),
    *("No accessKey is configured", "hostedKey may not be used"),
)
"""What the scenario about denials leads to, and nothing else may."""
ADMIN_TIMEOUT_S: Final = 60
COUNT: Final = 12


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("4.9.8", marks=pytest.mark.xdist_group("java-access-4.9.8")),
        pytest.param("5.3.3", marks=pytest.mark.xdist_group("java-access-5.3.3")),
    ],
)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(version: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    toolchain = find_clients(version)
    work = tmp_path_factory.mktemp(f"access-{version}")
    write_accounts(work / "home", ACCOUNTS)
    with Serving(work / "data", SETTINGS | {"rocketmqHome": work / "home"}) as servers:
        names = (*SCENARIOS, "access")
        told = run_scenarios(toolchain, work / "java", servers.namesrv, names, SIGNERS)
    lines = servers.log.read_text().splitlines()
    assert [line for line in lines if " ERROR " in line or "Traceback" in line] == []
    assert "-secret" not in "\n".join(lines)
    # A one-way request that is denied is told of nowhere else.
    denied = [line for line in lines if "request denied" in line]
    assert [line for line in denied if not any(words in line for words in DENIALS)] == []
    return told


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_all_that_clients_do_works_with_the_permissions_for_it(
    run: dict[str, Told], scenario: str
) -> None:
    told = went_well(run, scenario)
    assert not [line for line in told.lines if "AclException" in str(line)]


def test_an_account_does_what_it_may_and_nothing_else(run: dict[str, Told]) -> None:
    told = went_well(run, "access")
    assert len(told.all("sent", status="SEND_OK")) == COUNT - 1
    assert sorted(told.bodies("consumer")) == sorted(f"body-{number}" for number in range(COUNT))
    assert told.all("allowed") == []
    denied = {line["what"]: line["error"] for line in told.all("denied")}
    assert {line["code"] for line in told.all("denied")} == {1}
    words = {
        "send": "No default permission for topic:closed-topic",
        "batch": "No default permission for topic:closed-topic",
        "group": "No default permission for group:closed-group",
        "forger": "Check signature failed for accessKey=userKey1",
        "stranger": "No acl config for strangeKey",
        "nobody": "No accessKey is configured",
        "elsewhere": "accessKey=hostedKey may not be used from 127.0.0.1",
        "settings": "Need admin permission for request code=26, but accessKey=userKey1 is not",
    }
    assert denied.keys() == words.keys()
    for what, expected in words.items():
        assert denied[what] == f"org.apache.rocketmq.acl.common.AclException: {expected}"
    assert told.one("settings")["size"] > 100


def test_a_permission_given_while_a_client_sends_is_there_without_a_restart(
    version: str, tmp_path: Path
) -> None:
    toolchain = find_clients(version)
    write_accounts(tmp_path / "home", ACCOUNTS)
    with Serving(tmp_path / "data", SETTINGS | {"rocketmqHome": tmp_path / "home"}) as servers:
        command = scenario_command(
            toolchain, tmp_path / "java", servers.namesrv, ["access-later"], SIGNERS
        )
        with LineProcess(command, home=tmp_path / "java") as client:
            client.wait_for("denied", what="later")
            write_accounts(tmp_path / "home", ACCOUNTS.replace("later-topic=DENY", "a=DENY"))
            client.wait_for("sent", topic="later-topic")
            client.wait_for("end")
            assert {line["status"] for line in client.all("sent")} == {"SEND_OK"}


def test_a_white_address_opens_a_broker_only_if_a_setting_says_so(
    version: str, tmp_path: Path
) -> None:
    toolchain = find_clients(version)
    write_accounts(tmp_path / "home", f"globalWhiteRemoteAddresses: [127.0.0.1]\n{ACCOUNTS}")
    settings = SETTINGS | {"rocketmqHome": tmp_path / "home"}
    with Serving(tmp_path / "data", settings | {"aclWhiteListGrants": "true"}) as servers:
        told = run_scenarios(toolchain, tmp_path / "java", servers.namesrv, ["sync", "push"])
        for name in ("sync", "push"):
            went_well(told, name)
    with Serving(tmp_path / "data", settings) as servers:
        told = run_scenarios(toolchain, tmp_path / "java", servers.namesrv, ["sync"])
        last = told["sync"].lines[-1]
        assert last["kind"] == "failed"
        assert "No accessKey is configured" in last["error"]


class AdminTool:
    """``mqadmin`` of 4.9.8, the last release that has commands for these accounts."""

    def __init__(self, home: Path, keys: str) -> None:
        self._toolchain = find_clients("4.9.8")
        self._home = home
        conf = home / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        access_key, secret_key = keys.split(":")
        (conf / "tools.yml").write_text(f"accessKey: {access_key}\nsecretKey: {secret_key}\n")
        (conf / "logback_tools.xml").write_text("<configuration/>")

    def __call__(self, *arguments: str) -> str:
        flags = (f"-Drocketmq.home.dir={self._home}", f"-Duser.home={self._home}", *HEAP_FLAGS)
        main = "org.apache.rocketmq.tools.command.MQAdminStartup"
        done = subprocess.run(
            self._toolchain.command(main, *arguments, flags=flags),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ADMIN_TIMEOUT_S,
            check=False,
        )
        return done.stdout + done.stderr


def test_mqadmin_changes_accounts(tmp_path: Path) -> None:
    access_file = write_accounts(tmp_path / "home", ACCOUNTS)
    with Serving(tmp_path / "data", SETTINGS | {"rocketmqHome": tmp_path / "home"}) as servers:
        at = ("-n", servers.namesrv, "-b", servers.broker)
        admin = AdminTool(tmp_path / "tools", SIGNERS["operator"])
        account = ("-a", "newUser1", "-s", "new-secret", "-m", "false", "-t", "orders=PUB|SUB")
        said = admin("updateAclConfig", *at, *account, "-i", "DENY", "-u", "SUB")
        assert "success" in said, said
        assert "newUser1" in access_file.read_text()
        said = admin("updateGlobalWhiteAddr", *at, "-g", "10.9.9.*")
        assert "success" in said, said
        said = admin("clusterAclConfigVersion", *at)
        assert str(access_file) in said, said
        assert "new-secret" not in said
        said = admin("deleteAccessConfig", *at, "-a", "newUser1")
        assert "success" in said, said
        assert "newUser1" not in access_file.read_text()
        said = admin("deleteAccessConfig", *at, "-a", "newUser1")
        assert "there is no such account" in said, said
        user = AdminTool(tmp_path / "user-tools", SIGNERS["user"])
        said = user("updateAclConfig", *at, *account)
        assert "Need admin permission for request code=50" in said, said
        assert "newUser1" not in access_file.read_text()
