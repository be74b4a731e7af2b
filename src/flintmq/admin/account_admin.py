"""Access control: accounts and white lists of brokers, and how often they were changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flintmq.admin.admin_base import AdminBase
from flintmq.admin.admin_errors import MissingError
from flintmq.admin.changes import AdminChange, PlannedChange, carry_out, plan_each
from flintmq.client.errors import ResponseError
from flintmq.client.searching.broker_places import Answers, BrokerPlace
from flintmq.format.wire.bodies.dialect import Members, loads_body
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.access import (
    AccessVersionResponse,
    DeleteAccountRequest,
    UpdateAccountRequest,
    UpdateWhiteAddressesRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """What is to be said of an account; what is None stays as it is."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: Sequence[str] | None = None
    """Like ``orders=PUB|SUB``."""
    group_perms: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessVersion:
    """How often one file of accounts was changed on a broker."""

    cluster: str
    broker: str
    address: str
    file: str
    counter: int
    changed_at_ms: int | None


class AccountAdmin(AdminBase):
    """Operations on the access control of brokers."""

    async def put_account(
        self,
        account: AccountSettings,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        dry_run: bool = False,
    ) -> list[AdminChange]:
        """Add an account on brokers, or change what is said of one.  No secret is ever shown."""
        header = UpdateAccountRequest(
            access_key=account.access_key,
            secret_key=account.secret_key,
            white_remote_address=account.white_remote_address,
            admin=account.admin,
            default_topic_perm=account.default_topic_perm,
            default_group_perm=account.default_group_perm,
            topic_perms=_joined(account.topic_perms),
            group_perms=_joined(account.group_perms),
        )

        async def plan(place: BrokerPlace) -> PlannedChange:
            before = await self._account(place.address, account.access_key)
            return self._account_plan(place, header, before, _shown(account))

        places = await self.places(cluster=cluster, broker=broker, masters_only=False)
        plans = await plan_each(places, f"account {account.access_key}", plan)
        return await carry_out(plans, dry_run=dry_run)

    def _account_plan(
        self,
        place: BrokerPlace,
        header: UpdateAccountRequest,
        before: Mapping[str, object] | None,
        new: dict[str, object],
    ) -> PlannedChange:
        change = AdminChange(
            target=place.label, subject=f"account {header.access_key}", old=before, new=new
        )
        code = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
        return PlannedChange(change, lambda: self.ask(place.address, code, header), always=True)

    async def _account(self, address: str, access_key: str) -> dict[str, object] | None:
        """Return what a broker says of an account; None too where it does not tell accounts."""
        try:
            answer = await self.ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        except ResponseError:
            # Releases from 4.9.5 on have no such request any more.
            return None
        if not answer.body:
            return None
        members = Members(loads_body(answer.body), "accounts")
        for one in members.items("plainAccessConfigs"):
            if isinstance(one, dict) and one.get("accessKey") == access_key:
                return {key: value for key, value in one.items() if key != "secretKey"}
        return None

    async def delete_account(
        self,
        access_key: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        dry_run: bool = False,
    ) -> list[AdminChange]:
        """Remove an account from brokers."""
        header = DeleteAccountRequest(access_key=access_key)

        async def plan(place: BrokerPlace) -> PlannedChange:
            before = await self._account(place.address, access_key)
            return self._account_deletion(place, header, before)

        places = await self.places(cluster=cluster, broker=broker, masters_only=False)
        plans = await plan_each(places, f"account {access_key}", plan)
        return await carry_out(plans, dry_run=dry_run)

    def _account_deletion(
        self, place: BrokerPlace, header: DeleteAccountRequest, before: Mapping[str, object] | None
    ) -> PlannedChange:
        change = AdminChange(target=place.label, subject=f"account {header.access_key}", old=before)
        code = RequestCode.DELETE_ACL_CONFIG
        return PlannedChange(change, lambda: self.ask(place.address, code, header), always=True)

    async def put_white_addresses(
        self,
        addresses: Sequence[str],
        *,
        cluster: str | None = None,
        broker: str | None = None,
        dry_run: bool = False,
    ) -> list[AdminChange]:
        """Replace the list of addresses from which requests need no account."""
        header = UpdateWhiteAddressesRequest(global_white_addrs=",".join(addresses))
        plans = [
            self._white_plan(place, header, addresses)
            for place in await self.places(cluster=cluster, broker=broker, masters_only=False)
        ]
        return await carry_out(plans, dry_run=dry_run)

    def _white_plan(
        self, place: BrokerPlace, header: UpdateWhiteAddressesRequest, addresses: Sequence[str]
    ) -> PlannedChange:
        change = AdminChange(
            target=place.label,
            subject="global white addresses",
            new={"addresses": list(addresses)},
        )
        code = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
        return PlannedChange(change, lambda: self.ask(place.address, code, header), always=True)

    async def access_versions(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> Answers[BrokerPlace, list[AccessVersion]]:
        """Return how often the files of accounts were changed on brokers."""

        async def ask(place: BrokerPlace) -> list[AccessVersion]:
            answer = await self.ask(place.address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
            told = AccessVersionResponse.decode(answer.ext_fields)
            files = loads_body((told.all_acl_file_version or "{}").encode())
            if not isinstance(files, dict):
                raise MissingError(f"{place.label} tells no versions of its accounts")
            return [_version(place, str(path), files[path]) for path in sorted(files)]

        places = await self.places(cluster=cluster, broker=broker, masters_only=False)
        return await self.ask_all(places, ask)


def _joined(entries: Sequence[str] | None) -> str | None:
    return None if entries is None else ",".join(entries)


def _shown(account: AccountSettings) -> dict[str, object]:
    """Return what is said of an account, its secret only as a sign that one was given."""
    said: dict[str, object] = {
        "accessKey": account.access_key,
        "secretKey": None if account.secret_key is None else "(given)",
        "whiteRemoteAddress": account.white_remote_address,
        "admin": account.admin,
        "defaultTopicPerm": account.default_topic_perm,
        "defaultGroupPerm": account.default_group_perm,
        "topicPerms": None if account.topic_perms is None else list(account.topic_perms),
        "groupPerms": None if account.group_perms is None else list(account.group_perms),
    }
    return {name: value for name, value in said.items() if value is not None}


def _version(place: BrokerPlace, path: str, value: Any) -> AccessVersion:
    members = Members(value, "the version of a file of accounts")
    changed = members.integer("timestamp", 0)
    return AccessVersion(
        cluster=place.cluster,
        broker=place.broker,
        address=place.address,
        file=path,
        counter=members.integer("counter", 0),
        changed_at_ms=changed if changed > 0 else None,
    )
