"""The content of one access file: ``plain_acl.yml`` and its like, read, changed and written.

Every scalar is read as the text that it is, so an access key of digits keeps its zeros.  Members
that are not known are kept when a file is written again; its comments are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import yaml

from flintmq.access.access_errors import AccessFileError
from flintmq.access.accounts import Account, is_retry_topic, parse_rights
from flintmq.access.address_patterns import parse_patterns
from flintmq.model.data_version import DataVersion
from flintmq.model.topics import RETRY_PREFIX

FILE_SIZE_MAX: Final = 1 << 20
ACCOUNT_COUNT_MAX: Final = 10_000
RULE_COUNT_MAX: Final = 10_000
"""Entries for topics, and for groups, of one account."""
DEPTH_MAX: Final = 8
KEY_LENGTH_MIN: Final = 7
"""Of access keys and secret keys, as in RocketMQ."""
KEY_LENGTH_MAX: Final = 256

_ACCOUNTS: Final = "accounts"
_WHITE_ADDRESSES: Final = "globalWhiteRemoteAddresses"
_VERSION: Final = "dataVersion"
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
_Loader: Final[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""It makes nothing but texts, lists and mappings."""


@dataclass(frozen=True, slots=True)
class AccessDocument:
    """What one file says."""

    members: dict[str, Any]
    accounts: tuple[Account, ...]
    white_addresses: tuple[str, ...]
    version: DataVersion

    def raw_account(self, access_key: str) -> dict[str, Any] | None:
        """Return an account by the names and texts of the file."""
        return next((one for one in self.raw_accounts() if one["accessKey"] == access_key), None)

    def raw_accounts(self) -> list[dict[str, Any]]:
        """Return all accounts by the names and texts of the file."""
        found: list[dict[str, Any]] = list_of(self.members, _ACCOUNTS)
        return found


def load_yaml(content: bytes) -> dict[str, Any]:
    """Return the members of a YAML file, every scalar as text."""
    if len(content) > FILE_SIZE_MAX:
        raise AccessFileError(f"the file is larger than {FILE_SIZE_MAX} bytes")
    try:
        _check_shape(content)
        members = yaml.load(content, _Loader)
    except yaml.YAMLError as error:
        raise AccessFileError(f"the file is no YAML: {_place_of(error)}") from None
    except (RecursionError, ValueError) as error:
        raise AccessFileError(f"the file is no YAML: {type(error).__name__}") from None
    if members in (None, ""):
        return {}
    if not isinstance(members, dict):
        raise AccessFileError("the file is no mapping of names to values")
    return members


def _check_shape(content: bytes) -> None:
    """Raise AccessFileError for what would take the stack or the time of who builds it.

    The loader of libyaml goes down one level of C for each level of a file, without a limit.
    Aliases make a small file a large tree, and no access file needs them.
    """
    depth = 0
    for event in yaml.parse(content, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                raise AccessFileError(f"the file has more than {DEPTH_MAX} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            raise AccessFileError("the file has an alias, which is not read")


def _place_of(error: yaml.YAMLError) -> str:
    """Return where a file is wrong, without its words: a secret may be among them."""
    mark = getattr(error, "problem_mark", None)
    return (
        "it cannot be read" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
    )


def read_document(content: bytes) -> AccessDocument:
    """Return what a file says; raise AccessFileError if it cannot be meant so."""
    return document_of(load_yaml(content))


def document_of(members: dict[str, Any]) -> AccessDocument:
    """Return the document of some members, which are checked."""
    raw = list_of(members, _ACCOUNTS)
    if len(raw) > ACCOUNT_COUNT_MAX:
        raise AccessFileError(f"there are more than {ACCOUNT_COUNT_MAX} accounts")
    accounts = tuple(_account(one, number) for number, one in enumerate(raw, 1))
    white = tuple(_texts(members, _WHITE_ADDRESSES, "the file"))
    parse_patterns(*white)
    return AccessDocument(members, accounts, white, _version(members))


def encode_document(document: AccessDocument) -> bytes:
    """Return the bytes of a file."""
    content = yaml.safe_dump(
        document.members, sort_keys=False, allow_unicode=True, default_flow_style=False
    ).encode()
    if len(content) > FILE_SIZE_MAX:
        raise AccessFileError(f"the file would be larger than {FILE_SIZE_MAX} bytes")
    return content


# -- changes -----------------------------------------------------------------------------------


def with_account(
    document: AccessDocument, access_key: str, changes: dict[str, Any], now_ms: int
) -> AccessDocument:
    """Return the document with an account added or changed; what is not said stays as it was."""
    before = document.raw_account(access_key)
    changed = {**(before or {}), "accessKey": access_key, **changes}
    accounts = [changed if one is before else one for one in document.raw_accounts()] + (
        [] if before is not None else [changed]
    )
    return _changed(document, {_ACCOUNTS: accounts}, now_ms)


def without_account(document: AccessDocument, access_key: str, now_ms: int) -> AccessDocument:
    """Return the document without an account."""
    kept = [one for one in document.raw_accounts() if one["accessKey"] != access_key]
    return _changed(document, {_ACCOUNTS: kept}, now_ms)


def with_white_addresses(
    document: AccessDocument, addresses: list[str], now_ms: int
) -> AccessDocument:
    """Return the document with other addresses on its global white list."""
    return _changed(document, {_WHITE_ADDRESSES: addresses}, now_ms)


def _changed(document: AccessDocument, changes: dict[str, Any], now_ms: int) -> AccessDocument:
    version = document.version.next(now_ms)
    numbers = [{"counter": version.counter, "timestamp": version.timestamp}]
    return document_of({**document.members, **changes, _VERSION: numbers})


# -- reading -----------------------------------------------------------------------------------


def _account(raw: Any, number: int) -> Account:
    what = f"account {number}"
    if not isinstance(raw, dict):
        raise AccessFileError(f"{what} is no mapping of names to values")
    access_key = _key(raw, "accessKey", what)
    secret_key = _key(raw, "secretKey", what)
    raw["accessKey"] = access_key
    # In YAML a truth and a text look alike; the file is written with a truth.
    raw["admin"] = text_of(raw, "admin", what) in _TRUE
    topics = _rules(raw, "topicPerms", what)
    # The retry topic of a group stands for the group, wherever the file has it.
    groups = {name: one for name, one in topics.items() if is_retry_topic(name)}
    groups |= _rules(raw, "groupPerms", what)
    return Account(
        access_key=access_key,
        secret=secret_key.encode(),
        is_admin=raw["admin"],
        white_addresses=parse_patterns(text_of(raw, "whiteRemoteAddress", what)),
        default_topic_rights=parse_rights(text_of(raw, "defaultTopicPerm", what)),
        default_group_rights=parse_rights(text_of(raw, "defaultGroupPerm", what)),
        topic_rights={name: one for name, one in topics.items() if not is_retry_topic(name)},
        group_rights={name.removeprefix(RETRY_PREFIX): one for name, one in groups.items()},
    )


def text_of(members: dict[str, Any], name: str, what: str) -> str:
    """Return a member that is a text, or nothing."""
    value = members.get(name)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise AccessFileError(f"{what}: {name} is no text")
    return "" if value in _NULLS else value.strip()


def list_of(members: dict[str, Any], name: str) -> list[Any]:
    """Return a member that is a list, or nothing."""
    value = members.get(name)
    if value is None or (isinstance(value, str) and value.strip() in _NULLS):
        return []
    if not isinstance(value, list):
        raise AccessFileError(f"{name} is no list")
    return value


def _texts(members: dict[str, Any], name: str, what: str) -> list[str]:
    value = members.get(name)
    values = [value] if isinstance(value, str) and value not in _NULLS else list_of(members, name)
    if not all(isinstance(one, str) for one in values):
        raise AccessFileError(f"{what}: {name} has an entry that is no text")
    return [one.strip() for one in values]


def _key(raw: dict[str, Any], name: str, what: str) -> str:
    key = text_of(raw, name, what)
    if not KEY_LENGTH_MIN <= len(key) <= KEY_LENGTH_MAX:
        allowed = f"{KEY_LENGTH_MIN} to {KEY_LENGTH_MAX} characters"
        raise AccessFileError(f"{what}: {name} has {len(key)} characters; allowed are {allowed}")
    return key


def _rules(raw: dict[str, Any], name: str, what: str) -> dict[str, int]:
    texts = _texts(raw, name, what)
    if len(texts) > RULE_COUNT_MAX:
        raise AccessFileError(f"{what}: {name} has more than {RULE_COUNT_MAX} entries")
    rules = {}
    for text in texts:
        resource, equals, rights = text.partition("=")
        if not equals or not resource.strip() or "=" in rights:
            raise AccessFileError(f"{what}: {name}: {text[:80]!r} is not NAME=RIGHTS")
        rules[resource.strip()] = parse_rights(rights)
    return rules


def _version(members: dict[str, Any]) -> DataVersion:
    versions = list_of(members, _VERSION)
    if not versions or not isinstance(versions[0], dict):
        return DataVersion()
    try:
        counter, timestamp = (int(versions[0].get(name, 0)) for name in ("counter", "timestamp"))
    except (TypeError, ValueError):
        raise AccessFileError(f"{_VERSION} has what is no number") from None
    return DataVersion(timestamp, counter)
