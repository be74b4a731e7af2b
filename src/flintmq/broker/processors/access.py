"""Accounts and white lists, as operators ask for them and change them; no answer has a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flintmq.errors import FlintError
from flintmq.format.wire.bodies.dialect import dumps_body
from flintmq.format.wire.bodies.topics import version_to_json
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.headers.access import (
    AccessVersionResponse,
    DeleteAccountRequest,
    UpdateAccountRequest,
    UpdateWhiteAddressesRequest,
)
from flintmq.format.wire.headers.clients import NoFields
from flintmq.remoting import Answer, RefusedError, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.access.access_control import AccessControl
    from flintmq.access.accounts import Accounts
    from flintmq.broker.context import BrokerContext

_SHOWN: Final = (
    *("accessKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm"),
    *("topicPerms", "groupPerms"),
)
"""What is told of an account: all but its secret key."""


class AccessProcessor:
    """Serves what operators ask and order about access control."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def update_account(self, request: Request[UpdateAccountRequest]) -> Answer:
        """Add an account or change one."""
        header = request.header
        said: dict[str, Any] = {
            "secretKey": header.secret_key,
            "whiteRemoteAddress": header.white_remote_address,
            "admin": header.admin,
            "defaultTopicPerm": header.default_topic_perm,
            "defaultGroupPerm": header.default_group_perm,
            "topicPerms": _entries(header.topic_perms),
            "groupPerms": _entries(header.group_perms),
        }
        changes = {name: value for name, value in said.items() if value is not None}
        code = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        access = self._access(code)
        return await _change(access, code, access.files.put_account, header.access_key, changes)

    async def delete_account(self, request: Request[DeleteAccountRequest]) -> Answer:
        """Remove an account."""
        code = ResponseCode.DELETE_ACL_CONFIG_FAILED
        access = self._access(code)
        return await _change(access, code, access.files.delete_account, request.header.access_key)

    async def update_white_addresses(self, request: Request[UpdateWhiteAddressesRequest]) -> Answer:
        """Replace a global white list."""
        header = request.header
        code = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        access = self._access(code)
        addresses = _entries(header.global_white_addrs) or []
        put = access.files.put_white_addresses
        return await _change(access, code, put, addresses, header.acl_file_full_path)

    def versions(self, request: Request[NoFields]) -> Answer:
        """Tell how often the files were changed."""
        config = self._context.config
        documents = self._access(ResponseCode.SYSTEM_ERROR).files.documents()
        by_path = {str(path): version_to_json(one.version) for path, one in documents.items()}
        header = AccessVersionResponse(
            version=dumps_body(next(iter(by_path.values()), {})).decode(),
            all_acl_file_version=dumps_body(by_path).decode(),
            broker_name=config.name,
            broker_addr=self._context.address,
            cluster_name=config.cluster,
        )
        return Answer(header=header)

    def configuration(self, request: Request[NoFields]) -> Answer:
        """Tell white lists and accounts, without their secret keys."""
        documents = self._access(ResponseCode.SYSTEM_ERROR).files.documents().values()
        body = {
            "globalWhiteAddrs": [one for each in documents for one in each.white_addresses],
            "plainAccessConfigs": [
                {name: account[name] for name in _SHOWN if account.get(name) not in (None, "")}
                for each in documents
                for account in each.raw_accounts()
            ],
        }
        return Answer(parts=[dumps_body(body)])

    def _access(self, code: int) -> AccessControl:
        access = self._context.access
        if access is None:
            raise RefusedError(code, "access control is off: aclEnable=false")
        return access


async def _change(
    access: AccessControl, code: int, change: Callable[..., Accounts], *arguments: Any
) -> Answer:
    try:
        await access.change(change, *arguments)
    except FlintError as error:
        raise RefusedError(code, str(error)) from error
    return Answer()


def _entries(text: str | None) -> list[str] | None:
    """Return the parts of a list with commas; one inside of braces belongs to its part."""
    if text is None:
        return None
    parts, depth = [""], 0
    for one in text:
        depth += (one == "{") - (one == "}")
        if one == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += one
    return [part.strip() for part in parts if part.strip()]
