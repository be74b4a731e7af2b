import logging
import stat
from pathlib import Path
from typing import Final

import pytest

from flintmq.access.access_errors import AccessFileError
from flintmq.access.access_files import FILE_COUNT_MAX, AccessFiles
from tests.kits.broker.access_kit import ACCOUNTS, ADMIN, HOSTED, USER, write_accounts

OTHER: Final = "accounts: [{accessKey: otherKey, secretKey: other-secret}]"


def files_in(home: Path) -> AccessFiles:
    return AccessFiles(home / "conf" / "plain_acl.yml", now_ms=lambda: 5)


def test_accounts_come_from_the_main_file_and_from_those_beside_it(tmp_path: Path) -> None:
    write_accounts(tmp_path)
    write_accounts(tmp_path, OTHER, "acl/deep/other.yaml")
    write_accounts(tmp_path, f"accounts: [{{accessKey: {USER}, secretKey: another}}]", "acl/a.yml")
    write_accounts(tmp_path, "no: [yaml", "acl/notes.txt")
    accounts = files_in(tmp_path).load()
    assert accounts.by_key.keys() == {ADMIN, USER, HOSTED, "otherKey"}
    # The first one that defines an account holds.
    assert accounts.by_key[USER].secret == b"user-secret"


def test_a_server_without_a_sound_file_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(AccessFileError, match="no such file"):
        files_in(tmp_path).load()
    write_accounts(tmp_path, "accounts: [")
    with pytest.raises(AccessFileError, match="no YAML"):
        files_in(tmp_path).load()
    write_accounts(tmp_path)
    for number in range(FILE_COUNT_MAX + 1):
        write_accounts(tmp_path, "accounts: []", f"acl/{number}.yml")
    with pytest.raises(AccessFileError, match="more than"):
        files_in(tmp_path).load()


def test_what_changed_is_read_again_and_what_did_not_is_not(tmp_path: Path) -> None:
    path = write_accounts(tmp_path)
    files = files_in(tmp_path)
    files.load()
    assert files.reload() is None
    write_accounts(tmp_path, OTHER)
    changed = files.reload()
    assert changed is not None
    assert changed.by_key.keys() == {"otherKey"}
    # Of the same length, at the same time by the clock of the files.
    path.write_text(OTHER.replace("otherKey", "thirdKey"))
    changed = files.reload()
    assert changed is not None
    assert changed.by_key.keys() == {"thirdKey"}
    added = write_accounts(tmp_path, ACCOUNTS, "acl/more.yml")
    changed = files.reload()
    assert changed is not None
    assert changed.by_key.keys() == {"thirdKey", ADMIN, USER, HOSTED}
    added.unlink()
    changed = files.reload()
    assert changed is not None
    assert changed.by_key.keys() == {"thirdKey"}


def test_a_broken_file_keeps_what_it_said_last_and_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_accounts(tmp_path)
    files = files_in(tmp_path)
    files.load()
    caplog.set_level(logging.INFO)
    path.write_text("accounts: [{accessKey: thirdKey, secretKey: top-secret")
    for _ in range(3):
        assert files.reload() is None
    (line,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert "what it said last holds" in line.message
    assert "top-secret" not in caplog.text
    assert files.documents()[path].raw_account(ADMIN) is not None
    write_accounts(tmp_path, OTHER)
    changed = files.reload()
    assert changed is not None
    assert changed.by_key.keys() == {"otherKey"}


def test_a_file_is_changed_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = write_accounts(tmp_path)
    path.chmod(0o640)
    files = files_in(tmp_path)
    files.load()
    accounts = files.put_account("newUser1", {"secretKey": "new-secret", "admin": False})
    assert accounts.by_key["newUser1"].secret == b"new-secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert files_in(tmp_path).load() == accounts
    assert "newUser1" not in files.delete_account("newUser1").by_key
    with pytest.raises(AccessFileError, match="no such account"):
        files.delete_account("newUser1")


def test_a_change_goes_to_the_file_that_has_the_account(tmp_path: Path) -> None:
    main = write_accounts(tmp_path)
    other = write_accounts(tmp_path, OTHER, "acl/other.yml")
    before = main.read_bytes()
    files = files_in(tmp_path)
    files.load()
    files.put_account("otherKey", {"defaultTopicPerm": "PUB"})
    files.put_white_addresses(["10.0.0.*"], str(other))
    assert main.read_bytes() == before
    assert "10.0.0.*" in other.read_text()
    outside = tmp_path / "outside.yml"
    for name in (str(outside), str(other.parent / ".." / ".." / "outside.yml"), "/etc/passwd"):
        with pytest.raises(AccessFileError, match="none of the access files"):
            files.put_white_addresses(["10.0.0.*"], name)
    assert not outside.exists()


def test_a_change_keeps_what_came_into_the_file_meanwhile(tmp_path: Path) -> None:
    write_accounts(tmp_path)
    files = files_in(tmp_path)
    files.load()
    write_accounts(tmp_path, OTHER)
    accounts = files.put_account("newUser1", {"secretKey": "new-secret"})
    assert accounts.by_key.keys() == {"otherKey", "newUser1"}


def test_a_file_that_is_made_is_private_and_a_link_stays_a_link(tmp_path: Path) -> None:
    write_accounts(tmp_path, OTHER, "acl/other.yml")
    files = files_in(tmp_path)
    files.load()
    files.put_account("newUser1", {"secretKey": "new-secret"})
    assert stat.S_IMODE(files.main.stat().st_mode) == 0o600
    assert next(iter(files.documents())) == files.main
    elsewhere = tmp_path / "elsewhere.yml"
    files.main.rename(elsewhere)
    files.main.symlink_to(elsewhere)
    files.put_account("newUser2", {"secretKey": "new-secret"})
    assert files.main.is_symlink()
    assert "newUser2" in elsewhere.read_text()
