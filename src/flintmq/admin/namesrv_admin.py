"""Name servers: their settings, key-value pairs, and whether a broker may be written to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flintmq.admin.admin_base import AdminBase
from flintmq.admin.admin_errors import MissingError, is_absence
from flintmq.admin.changes import AdminChange, PlannedChange, carry_out, plan_each
from flintmq.admin.server_admin import settings_body, settings_change, shown_settings
from flintmq.client.errors import ResponseError, UsageError
from flintmq.client.searching.broker_places import Answers
from flintmq.format.wire.codes import RequestCode
from flintmq.format.wire.headers.namesrv import (
    AddWritePermResponse,
    KvConfigRequest,
    KvConfigResponse,
    PutKvConfigRequest,
    WipeWritePermResponse,
    WritePermRequest,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvValues:
    """The settings of one name server."""

    address: str
    values: Mapping[str, str]


class NamesrvAdmin(AdminBase):
    """Operations on name servers; each is done on all of them."""

    async def namesrv_config(self) -> Answers[str, NamesrvValues]:
        """Return the settings of all name servers."""
        return await self.ask_all(self.name_servers(), self._config_of)

    async def _config_of(self, server: str) -> NamesrvValues:
        answer = await self.ask(server, RequestCode.GET_NAMESRV_CONFIG)
        values = dict(sorted(shown_settings(answer.body).items()))
        return NamesrvValues(address=server, values=values)

    async def update_namesrv_config(
        self, settings: Mapping[str, str], *, dry_run: bool = False
    ) -> list[AdminChange]:
        """Change settings of all name servers while they run."""
        body = settings_body(settings)

        async def plan(server: str) -> PlannedChange:
            before = (await self._config_of(server)).values
            change = settings_change(f"name server {server}", before, settings)
            return self._settings_update(server, change, body)

        plans = await plan_each(self.name_servers(), "settings", plan)
        return await carry_out(plans, dry_run=dry_run)

    def _settings_update(self, server: str, change: AdminChange, body: bytes) -> PlannedChange:
        code = RequestCode.UPDATE_NAMESRV_CONFIG
        return PlannedChange(change, lambda: self.ask(server, code, None, body))

    # -- pairs -------------------------------------------------------------------------------

    async def put_pair(
        self, namespace: str, key: str, value: str, *, dry_run: bool = False
    ) -> list[AdminChange]:
        """Set a key-value pair on all name servers."""
        header = PutKvConfigRequest(namespace=namespace, key=key, value=value)

        async def plan(server: str) -> PlannedChange:
            before = await self._pair(server, namespace, key)
            change = _pair_change(server, namespace, key, old=before, new=value)
            return self._pair_put(server, change, header)

        plans = await plan_each(self.name_servers(), f"{namespace}/{key}", plan)
        return await carry_out(plans, dry_run=dry_run)

    def _pair_put(
        self, server: str, change: AdminChange, header: PutKvConfigRequest
    ) -> PlannedChange:
        return PlannedChange(change, lambda: self.ask(server, RequestCode.PUT_KV_CONFIG, header))

    async def delete_pair(
        self, namespace: str, key: str, *, dry_run: bool = False
    ) -> list[AdminChange]:
        """Delete a key-value pair from all name servers; MissingError if none has it."""
        header = KvConfigRequest(namespace=namespace, key=key)

        async def plan(server: str) -> PlannedChange | None:
            before = await self._pair(server, namespace, key)
            if before is None:
                return None
            change = _pair_change(server, namespace, key, old=before, new=None)
            return self._pair_deletion(server, change, header)

        plans = await plan_each(self.name_servers(), f"{namespace}/{key}", plan)
        if not plans:
            raise MissingError(f"no name server has {key!r} in {namespace!r}")
        return await carry_out(plans, dry_run=dry_run)

    def _pair_deletion(
        self, server: str, change: AdminChange, header: KvConfigRequest
    ) -> PlannedChange:
        return PlannedChange(change, lambda: self.ask(server, RequestCode.DELETE_KV_CONFIG, header))

    async def _pair(self, server: str, namespace: str, key: str) -> str | None:
        header = KvConfigRequest(namespace=namespace, key=key)
        try:
            answer = await self.ask(server, RequestCode.GET_KV_CONFIG, header)
        except ResponseError as error:
            if not is_absence(error):
                raise
            return None
        return KvConfigResponse.decode(answer.ext_fields).value

    # -- draining ----------------------------------------------------------------------------

    async def wipe_write_permission(
        self, broker: str, *, dry_run: bool = False
    ) -> list[AdminChange]:
        """Let nobody send to a broker any more: its topics lose the permission on name servers.

        It lasts until `add_write_permission`, or until the broker registers a change of topics.
        """
        return await self._set_writable(broker, is_writable=False, dry_run=dry_run)

    async def add_write_permission(
        self, broker: str, *, dry_run: bool = False
    ) -> list[AdminChange]:
        """Let everybody send to a broker again."""
        return await self._set_writable(broker, is_writable=True, dry_run=dry_run)

    async def _set_writable(
        self, broker: str, *, is_writable: bool, dry_run: bool
    ) -> list[AdminChange]:
        if ":" in broker:
            raise UsageError("name the broker, as clusterList shows it, not its address")
        await self.places(broker=broker, masters_only=False)
        plans = [
            PlannedChange(
                AdminChange(
                    target=f"name server {server}",
                    subject=f"write permission of {broker}",
                    new={"writable": is_writable},
                ),
                self._permission(server, broker, is_writable=is_writable),
            )
            for server in self.name_servers()
        ]
        return await carry_out(plans, dry_run=dry_run)

    def _permission(
        self, server: str, broker: str, *, is_writable: bool
    ) -> Callable[[], Awaitable[dict[str, int]]]:
        header = WritePermRequest(broker_name=broker)

        async def apply() -> dict[str, int]:
            if is_writable:
                code = RequestCode.ADD_WRITE_PERM_OF_BROKER
                answer = await self.ask(server, code, header)
                count = AddWritePermResponse.decode(answer.ext_fields).add_topic_count
            else:
                code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
                answer = await self.ask(server, code, header)
                count = WipeWritePermResponse.decode(answer.ext_fields).wipe_topic_count
            return {"topics": count}

        return apply


def _pair_change(
    server: str, namespace: str, key: str, *, old: str | None, new: str | None
) -> AdminChange:
    return AdminChange(
        target=f"name server {server}",
        subject=f"{namespace}/{key}",
        old=None if old is None else {"value": old},
        new=None if new is None else {"value": new},
    )
