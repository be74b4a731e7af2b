"""The access files of one server: read with limits, looked at again, changed one at a time.

There is one main file and, beside it, a directory ``acl`` with any number of others.  All calls
read or write files, so they belong into a thread.  A file that was sound and is broken now keeps
what it said last, and the log says so once for each fault.
"""

from __future__ import annotations

import logging
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from flintmq.access.access_document import (
    FILE_SIZE_MAX,
    AccessDocument,
    encode_document,
    read_document,
    with_account,
    with_white_addresses,
    without_account,
)
from flintmq.access.access_errors import AccessFileError
from flintmq.access.accounts import Account, Accounts
from flintmq.access.address_patterns import parse_patterns
from flintmq.settings.durable_file import replace_durably

logger = logging.getLogger(__name__)

FILE_COUNT_MAX: Final = 64
DIRECTORY_NAME: Final = "acl"
SETTLED_NS: Final = 100_000_000
"""A file that changed less than so long before it was read may change again unnoticed."""
_SUFFIXES: Final = frozenset({".yml", ".yaml"})
_ENTRY_COUNT_MAX: Final = 10_000
_PRIVATE: Final = 0o600
_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH


class _Stamp(NamedTuple):
    """How a file looks from outside; another content has another stamp."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int


@dataclass(slots=True)
class _KnownFile:
    """A file as it was read last."""

    document: AccessDocument
    stamp: _Stamp | None
    """None: it has to be read again at the next look."""
    fault: str | None = None
    """What is wrong with it now, if anything is."""


class AccessFiles:
    """The main file and the others, with what each said last."""

    def __init__(self, main: Path, *, now_ms: Callable[[], int]) -> None:
        self.main = main
        self._directory = main.parent / DIRECTORY_NAME
        self._now_ms = now_ms
        self._known: dict[Path, _KnownFile] = {}
        self._said: set[str] = set()

    def load(self) -> Accounts:
        """Read all files for the first time; raise AccessFileError if one of them is not sound."""
        for path in self._paths():
            self._known[path] = self._read(path)
        if not self._known:
            raise AccessFileError(f"{self.main}: there is no such file")
        return self._accounts()

    def reload(self) -> Accounts | None:
        """Look at the files again; return all accounts if any file has changed."""
        try:
            paths = self._paths()
        except (AccessFileError, OSError) as error:
            self._say_once(f"access files cannot be listed: {error}")
            return None
        has_changed = False
        for path in self._known.keys() - set(paths):
            logger.warning("access file gone, its accounts with it: path=%s", path)
            del self._known[path]
            has_changed = True
        for path in paths:
            has_changed |= self._look_again(path)
        return self._accounts() if has_changed else None

    def _look_again(self, path: Path) -> bool:
        """Read a file if it looks otherwise; return whether it says something else."""
        known = self._known.get(path)
        try:
            if known is not None and known.stamp == _stamp(path):
                return False
            self._known[path] = found = self._read(path)
        except (AccessFileError, OSError) as error:
            fault = str(error)
            if known is None:
                self._say_once(f"access file passed over: {fault}")
            elif known.fault != fault:
                known.fault = fault
                logger.error("access file broken, what it said last holds: %s", fault)  # noqa: TRY400
            return False
        has_changed = known is None or known.document.members != found.document.members
        if has_changed or (known is not None and known.fault is not None):
            count = len(found.document.accounts)
            logger.info("access file read: path=%s accounts=%d", path, count)
        return has_changed

    # -- what operators ask and change -----------------------------------------------------------

    def documents(self) -> dict[Path, AccessDocument]:
        """Return what each file said last; the main file is the first."""
        return {path: known.document for path, known in self._known.items()}

    def put_account(self, access_key: str, changes: dict[str, Any]) -> Accounts:
        """Add an account to the main file, or change it in its own."""
        path = self._path_of(access_key) or self.main
        return self._change(
            path, lambda one: with_account(one, access_key, changes, self._now_ms())
        )

    def delete_account(self, access_key: str) -> Accounts:
        """Remove an account from its file."""
        path = self._path_of(access_key)
        if path is None:
            raise AccessFileError("there is no such account")
        return self._change(path, lambda one: without_account(one, access_key, self._now_ms()))

    def put_white_addresses(self, addresses: list[str], file_name: str | None) -> Accounts:
        """Replace the global white list of the main file, or of another one that is read."""
        path = self.main
        if file_name:
            found = next((one for one in self._known if str(one) == file_name), None)
            if found is None:
                raise AccessFileError("aclFileFullPath is none of the access files")
            path = found
        return self._change(path, lambda one: with_white_addresses(one, addresses, self._now_ms()))

    def _path_of(self, access_key: str) -> Path | None:
        return next(
            (
                path
                for path, known in self._known.items()
                if known.document.raw_account(access_key) is not None
            ),
            None,
        )

    def _change(self, path: Path, change: Callable[[AccessDocument], AccessDocument]) -> Accounts:
        """Change a file as it is now, not as it was when it was looked at last."""
        # A file that is a link stays one: what it leads to is replaced.
        target = path.resolve()
        try:
            if target.exists():
                before, mode = self._read(path).document, stat.S_IMODE(target.stat().st_mode)
            else:
                before, mode = read_document(b""), _PRIVATE
            after = change(before)
            replace_durably(target, encode_document(after), mode=mode)
        except OSError as error:
            raise AccessFileError(f"the file cannot be written: {error.strerror}") from error
        is_new = path not in self._known
        self._known[path] = self._read(path)
        if is_new:
            self._known = {one: self._known[one] for one in self._paths() if one in self._known}
        return self._accounts()

    # -- reading ---------------------------------------------------------------------------------

    def _paths(self) -> list[Path]:
        """Return the files that are there, the main file first."""
        others = sorted(islice(self._others(), FILE_COUNT_MAX + 1))
        if len(others) > FILE_COUNT_MAX:
            raise AccessFileError(f"{self._directory}: more than {FILE_COUNT_MAX} access files")
        return [*([self.main] if self.main.is_file() else []), *others]

    def _others(self) -> Iterator[Path]:
        for number, path in enumerate(self._directory.rglob("*")):
            if number >= _ENTRY_COUNT_MAX:
                raise AccessFileError(f"{self._directory}: more than {_ENTRY_COUNT_MAX} entries")
            if path.suffix in _SUFFIXES and path != self.main and path.is_file():
                yield path

    def _read(self, path: Path) -> _KnownFile:
        stamp = _stamp(path)
        with path.open("rb") as file:
            content = file.read(FILE_SIZE_MAX + 1)
        try:
            document = read_document(content)
        except AccessFileError as error:
            raise AccessFileError(f"{path}: {error}") from error
        if path.stat().st_mode & _OTHERS:
            self._say_once(f"access file with secrets is open to every user: path={path}")
        is_settled = time.time_ns() - stamp.changed_ns > SETTLED_NS
        return _KnownFile(document, stamp if is_settled and stamp == _stamp(path) else None)

    def _accounts(self) -> Accounts:
        by_key: dict[str, Account] = {}
        white: list[str] = []
        for path, known in self._known.items():
            white += known.document.white_addresses
            for account in known.document.accounts:
                if by_key.setdefault(account.access_key, account) is not account:
                    self._say_once(f"access key defined twice, the first one holds: path={path}")
        return Accounts(by_key, parse_patterns(*white))

    def _say_once(self, words: str) -> None:
        if words not in self._said and len(self._said) < _ENTRY_COUNT_MAX:
            self._said.add(words)
            logger.warning("%s", words)


def _stamp(path: Path) -> _Stamp:
    found = path.stat()
    return _Stamp(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
