"""Access control of one server: the admission that every request passes.

The signature of a request is checked every time; then its class, and the rights of the account to
each topic and group that the request is about.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from flintmq.access.access_errors import DenialReason, DeniedError
from flintmq.access.accounts import PUBLISH
from flintmq.access.request_classes import ACCESS_CODES, REQUEST_CLASSES, Access
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.signature import ACCESS_KEY, SIGNATURE, signature_of
from flintmq.remoting.paced_log import PacedLog

if TYPE_CHECKING:
    from flintmq.access.access_files import AccessFiles
    from flintmq.access.accounts import Account, Accounts
    from flintmq.access.request_classes import TopicAt
    from flintmq.remoting import ReceivedRequest
    from flintmq.remoting.request_table import RequestSource

logger = logging.getLogger(__name__)

SHOWN_LENGTH_MAX: Final = 128
"""Of a name that a peer sent, in remarks and in the log."""
_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"


class AccessControl:
    """Decides about requests by the accounts of the access files, as they are now.

    ``topic_at`` tells the topic of a stored message.  Every account may send to ``open_topics``.
    """

    def __init__(
        self,
        files: AccessFiles,
        accounts: Accounts,
        *,
        white_list_grants: bool = False,
        topic_at: TopicAt = lambda offset: None,
        open_topics: frozenset[str] = frozenset(),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._accounts = accounts
        self._white_list_grants = white_list_grants
        self._topic_at = topic_at
        self._open_topics = open_topics
        self._denials = DenialLog(monotonic)
        self._changing = asyncio.Lock()

    # -- admission -----------------------------------------------------------------------------

    def admit(self, connection: RequestSource, request: ReceivedRequest) -> None:
        """Return if a request may be handled; raise DeniedError if it may not."""
        try:
            self._check(connection.peer[0], request)
        except DeniedError as denial:
            self._denials.note(denial, connection.peer[0], request.code)
            raise

    def _check(self, host: str, request: ReceivedRequest) -> None:
        code = request.code
        request_class = REQUEST_CLASSES.get(code)
        grants = self._white_list_grants and code not in ACCESS_CODES and request_class is not None
        if grants and self._accounts.white_addresses.match(host):
            return
        fields = _text_fields(request)
        account = self._account_of(fields)
        if grants and account.white_addresses.match(host):
            return
        _check_signature(account, request, fields)
        self._check_address(account, host)
        if request_class is None:
            raise DeniedError(
                DenialReason.UNKNOWN_REQUEST,
                f"request type {code} not supported",
                code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            )
        if request_class.access is Access.ADMIN:
            if not account.is_admin:
                raise DeniedError(
                    DenialReason.NOT_ADMIN,
                    f"Need admin permission for request code={code}, "
                    f"but accessKey={shown(account.access_key)} is not",
                )
        elif request_class.needs is not None and not account.has_all_rights:
            for needed in request_class.needs(request, fields, self._topic_at):
                is_open = needed.name in self._open_topics and not needed.is_group
                if not account.may(needed) and not (is_open and needed.rights & PUBLISH):
                    raise DeniedError(
                        DenialReason.NO_PERMISSION,
                        f"No default permission for {shown(str(needed))}",
                    )

    def _account_of(self, fields: Mapping[str, str]) -> Account:
        access_key = fields.get(ACCESS_KEY, "")
        if not access_key.strip():
            raise DeniedError(DenialReason.NO_ACCESS_KEY, "No accessKey is configured")
        account = self._accounts.by_key.get(access_key)
        if account is None:
            words = f"No acl config for {shown(access_key)}"
            raise DeniedError(DenialReason.UNKNOWN_ACCESS_KEY, words)
        return account

    def _check_address(self, account: Account, host: str) -> None:
        """Deny an account that may be used from some addresses only, and came from another one.

        Where white lists grant, as in RocketMQ, an account with a signature may come from anywhere.
        """
        white = account.white_addresses
        if self._white_list_grants or white.is_empty or white.match(host):
            return
        words = f"accessKey={shown(account.access_key)} may not be used from {host}"
        raise DeniedError(DenialReason.WRONG_ADDRESS, words)

    # -- the files -----------------------------------------------------------------------------

    @property
    def files(self) -> AccessFiles:
        """The files that the accounts come from."""
        return self._files

    async def watch(self, interval_ms: int) -> None:
        """Look at the files from time to time, in a thread, for as long as the server runs."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await self.reload()
            except Exception:
                logger.exception("access files could not be looked at")

    async def reload(self) -> None:
        """Look at the files now."""
        async with self._changing:
            found = await asyncio.to_thread(self._files.reload)
            if found is not None:
                self._accounts = found

    async def change(self, change: Callable[..., Accounts], *arguments: Any) -> None:
        """Change a file, in a thread; what it says holds when this returns."""
        async with self._changing:
            self._accounts = await asyncio.to_thread(change, *arguments)

    def denied_counts(self) -> dict[str, int]:
        """Return how often requests were denied, by reason."""
        return self._denials.by_reason()

    def runtime_info(self) -> dict[str, str]:
        """Return how often requests were denied, and why."""
        return self._denials.runtime_info()


def shown(text: str) -> str:
    """Return a name as it may stand in a remark or a log: on one line, and not too long."""
    plain = "".join(one if one.isprintable() else "?" for one in text[:SHOWN_LENGTH_MAX])
    return plain + ("…" if len(text) > SHOWN_LENGTH_MAX else "")


def _text_fields(request: ReceivedRequest) -> Mapping[str, str]:
    """Return the ext fields as texts, without making a command of a header that has only texts."""
    raw = request.raw_fields
    return raw if all(one.__class__ is str for one in raw.values()) else request.ext_fields


def _check_signature(account: Account, request: ReceivedRequest, fields: Mapping[str, str]) -> None:
    given = fields.get(SIGNATURE, "").encode("utf-8", "replace")
    right = signature_of(fields, request.body, account.secret)
    if hmac.compare_digest(given, right):
        return
    if request.code == RequestCode.QUERY_MESSAGE and _UNIQUE_KEY_QUERY in fields:
        # Clients up to 4.9.3 add this field after they have signed.
        older = {name: value for name, value in fields.items() if name != _UNIQUE_KEY_QUERY}
        if hmac.compare_digest(given, signature_of(older, request.body, account.secret)):
            return
    words = f"Check signature failed for accessKey={shown(account.access_key)}"
    raise DeniedError(DenialReason.WRONG_SIGNATURE, words)


class DenialLog:
    """Counts denials by their reasons, and logs some of them."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._counts: Counter[DenialReason] = Counter()
        self._log: PacedLog[DenialReason] = PacedLog(monotonic)

    def note(self, denial: DeniedError, host: str, code: int) -> None:
        """Count a denial; log it unless one of its kind was logged just before."""
        reason = denial.reason
        self._counts[reason] += 1
        not_logged = self._log.passes(reason)
        if not_logged is not None:
            logger.warning(
                "request denied: from=%s code=%d reason=%s not_logged=%d",
                host,
                code,
                denial.words,
                not_logged,
            )

    def by_reason(self) -> dict[str, int]:
        """Return the counts."""
        return {reason.value: count for reason, count in self._counts.items()}

    def runtime_info(self) -> dict[str, str]:
        """Return the counts by the names that tools show."""
        by_reason = (f"{one.value}:{count}" for one, count in self._counts.most_common())
        return {
            "aclDeniedCount": str(self._counts.total()),
            "aclDeniedReasons": ",".join(by_reason),
        }
