"""Requests to name servers: one after the other is asked until one answers."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

from flintmq.client.errors import NoNameServerError, ResponseError
from flintmq.client.own_threads import call_in_thread
from flintmq.format.wire.codes import ResponseCode
from flintmq.remoting import ConnectionLostError, RemotingClient, RemotingError

if TYPE_CHECKING:
    from flintmq.client.options import ClientOptions
    from flintmq.format.wire.command import Command
    from flintmq.format.wire.headers.codec import Header

logger = logging.getLogger(__name__)

DISCOVERY_TIMEOUT_S: Final = 3
DISCOVERY_SIZE_MAX: Final = 65_536


class NameServers:
    """The name servers of a client.  One is asked until it fails, then the next."""

    def __init__(self, options: ClientOptions, remoting: RemotingClient) -> None:
        self._options = options
        self._remoting = remoting
        self._addresses = list(options.name_servers)
        random.shuffle(self._addresses)
        self._chosen = 0

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the name servers that are known."""
        return tuple(self._addresses)

    async def discover(self) -> None:
        """Fetch the list over HTTP if ``discovery_url`` is set and no name server was given."""
        url = self._options.discovery_url
        if url is None or self._options.name_servers:
            return
        try:
            async with asyncio.timeout(2 * DISCOVERY_TIMEOUT_S):
                text = await call_in_thread("flintmq-discovery", _fetch, url)
        except (OSError, ValueError) as error:
            logger.warning("name servers not discovered: url=%s reason=%s", url, error)
            return
        found = list(filter(None, text.strip().partition("\n")[0].strip().split(";")))
        if found and set(found) != set(self._addresses):
            random.shuffle(found)
            self._addresses = found
            self._chosen = 0

    async def call(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        """Send a request and return the successful answer.

        Raises:
            NoNameServerError: none is known, or none can be reached.
            ResponseError: one answered with another code.
        """
        if not self._addresses:
            await self.discover()
        if not self._addresses:
            raise NoNameServerError(
                "no name server is known; give namesrv='host:port' or set NAMESRV_ADDR"
            )
        failures = []
        for turn in range(len(self._addresses)):
            at = (self._chosen + turn) % len(self._addresses)
            address = self._addresses[at]
            try:
                answer = await self._ask(address, code, header, body)
            except RemotingError as error:
                failures.append(str(error))
                continue
            except asyncio.CancelledError:
                # Whoever asked had no more time for this one: the next call begins with another.
                self._chosen = at + 1
                raise
            self._chosen = at
            if answer.code != ResponseCode.SUCCESS:
                raise ResponseError.for_code(answer.code, answer.remark, address=address)
            return answer
        raise NoNameServerError("no name server can be reached: " + "; ".join(failures))

    async def _ask(self, address: str, code: int, header: Header | None, body: bytes) -> Command:
        timeout_ms = self._options.request_timeout_ms
        try:
            return await self._remoting.call(address, code, header, body, timeout_ms=timeout_ms)
        except ConnectionLostError:
            # It may have been lost long ago, and only this request has noticed.
            return await self._remoting.call(address, code, header, body, timeout_ms=timeout_ms)


def _fetch(url: str) -> str:
    # Few clients are told of a page, and these bring a parser of mail and much more.
    import urllib.error
    import urllib.request

    if not url.startswith(("http://", "https://")):
        raise ValueError(f"not an HTTP address: {url}")
    try:
        with urllib.request.urlopen(url, timeout=DISCOVERY_TIMEOUT_S) as answer:
            content: bytes = answer.read(DISCOVERY_SIZE_MAX)
    except urllib.error.HTTPError as error:
        # It holds the connection open for those who want to read what the server says.
        error.close()
        raise
    return content.decode("utf-8", "replace")
