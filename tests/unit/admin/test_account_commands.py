"""The commands about access control, and being denied, against our broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.testing import EmbeddedCluster
from tests.kits.admin.admin_kit import AdminCli
from tests.kits.broker.access_kit import ADMIN, SECRETS, USER, write_accounts


def use(monkeypatch: pytest.MonkeyPatch, account: str) -> None:
    monkeypatch.setenv("FLINTMQ_ACCESS_KEY", account)
    monkeypatch.setenv("FLINTMQ_SECRET_KEY", SECRETS[account])


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminCli]:
    """A cluster with access control; requests are signed by an administrator."""
    write_accounts(tmp_path / "home")
    use(monkeypatch, ADMIN)
    with EmbeddedCluster(aclEnable="true", rocketmqHome=tmp_path / "home") as cluster:
        yield AdminCli(cluster.namesrv)


def test_accounts_are_added_counted_and_removed(guarded: AdminCli, tmp_path: Path) -> None:
    (before,) = guarded.rows("clusterAclConfigVersion", "-c", "DefaultCluster")
    assert (before["broker"], before["counter"]) == ("broker-a", 0)
    secret = tmp_path / "secret"
    secret.write_text("brand-new-secret\n")
    added = guarded.run(
        *("updateAclConfig", "-b", "broker-a", "-a", "newcomer", "-s", str(secret)),
        *("-t", "orders=PUB|SUB,inbox=PUB", "-i", "DENY", "--yes", "--output", "json"),
    )
    assert added.code == 0
    assert "brand-new-secret" not in added.out + added.err
    (row,) = added.envelope["rows"]
    assert row["new"]["topicPerms"] == ["orders=PUB|SUB", "inbox=PUB"]
    assert row["new"]["secretKey"] == "(given)"
    (after,) = guarded.rows("clusterAclConfigVersion", "-b", "broker-a")
    assert after["counter"] == 1
    (changed,) = guarded.change("updateAclConfig", "-b", "broker-a", "-a", "newcomer", "-i", "PUB")
    assert changed["old"]["defaultTopicPerm"] == "DENY"
    (white,) = guarded.change("updateGlobalWhiteAddr", "-b", "broker-a", "-g", "10.9.8.7")
    assert white["new"] == {"addresses": ["10.9.8.7"]}
    (gone,) = guarded.rows("deleteAclConfig", "-c", "DefaultCluster", "-a", "newcomer", "--yes")
    assert (gone["outcome"], gone["old"]["accessKey"]) == ("done", "newcomer")
    again = guarded.run("deleteAclConfig", "-c", "DefaultCluster", "-a", "newcomer", "--yes")
    assert again.code == 1


def test_who_may_not_do_it_ends_with_4(guarded: AdminCli, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, USER)
    denied = guarded.run("updateTopic", "-t", "forbidden", "-c", "DefaultCluster", "--yes")
    assert denied.code == 4
    assert "see the credentials" in denied.err
    assert SECRETS[USER] not in denied.err
    monkeypatch.delenv("FLINTMQ_ACCESS_KEY")
    monkeypatch.delenv("FLINTMQ_SECRET_KEY")
    unknown = guarded.run("brokerStatus", "-b", "broker-a")
    assert unknown.code == 4


def test_a_benchmark_that_is_denied_says_so_at_once(
    guarded: AdminCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLINTMQ_SECRET_KEY", "wrong-secret")
    done = guarded.run("bench", "producer", "-t", "BenchmarkTest", "--seconds", "600")
    assert done.code == 4
    (line,) = done.err.splitlines()
    assert "AclException" in line


def test_who_gives_the_secret_itself_does_not_see_it_again(guarded: AdminCli) -> None:
    account = ("updateAclConfig", "-b", "broker-a", "-a", "newcomer", "--yes")
    done = guarded.run(*account, "-s", "the-very-secret")
    assert done.code == 2
    assert "the-very-secret" not in done.out + done.err
    assert "never the key itself" in done.err
