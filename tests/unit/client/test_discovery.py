"""Name servers found by way of a page, from a real HTTP server."""

import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from flintmq import AsyncProducer, Message
from flintmq.client.errors import NoNameServerError
from flintmq.client.options import ClientOptions
from flintmq.client.routing.name_servers import NameServers
from flintmq.remoting import RemotingClient
from flintmq.testing.embedded import AsyncEmbeddedCluster


@dataclass(slots=True)
class Page:
    """A page whose content the test decides."""

    content: bytes = b""
    status: int = 200
    asked: list[str] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    shown = Page()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.asked.append(self.path)
            self.send_response(shown.status)
            self.end_headers()
            self.wfile.write(shown.content)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        shown.url = f"http://127.0.0.1:{server.server_port}/rocketmq/nsaddr"
        yield shown
        server.shutdown()
        thread.join()


async def test_a_producer_finds_its_name_server_by_the_first_line_of_a_page(page: Page) -> None:
    async with AsyncEmbeddedCluster() as mq:
        page.content = f"\n {mq.namesrv};\nnot this line\n".encode()
        async with AsyncProducer(discovery_url=page.url) as producer:
            await producer.send(Message(topic="orders", body=b"x"))
        assert len(mq.messages("orders")) == 1

    assert page.asked == ["/rocketmq/nsaddr"]


async def test_a_list_that_changes_is_followed_and_one_that_fails_is_kept(page: Page) -> None:
    async with RemotingClient() as remoting:
        servers = NameServers(ClientOptions(discovery_url=page.url), remoting)
        page.content = b"a:1;b:2"
        await servers.discover()
        assert set(servers.addresses) == {"a:1", "b:2"}
        page.content = b"c:3"
        await servers.discover()
        assert servers.addresses == ("c:3",)
        page.status, page.content = 500, b"d:4"
        await servers.discover()
        assert servers.addresses == ("c:3",)
        page.status, page.content = 200, b"\n\n"
        await servers.discover()
        assert servers.addresses == ("c:3",)


async def test_addresses_that_were_told_go_before_the_page(page: Page) -> None:
    async with RemotingClient() as remoting:
        options = ClientOptions(namesrv="a:1", discovery_url=page.url)
        servers = NameServers(options, remoting)
        await servers.discover()
        assert servers.addresses == ("a:1",)

    assert page.asked == []


async def test_a_page_that_comes_later_is_asked_for_again(page: Page) -> None:
    async with (
        AsyncEmbeddedCluster() as mq,
        AsyncProducer(discovery_url=page.url) as producer,
    ):
        with pytest.raises(NoNameServerError):
            await producer.send(Message(topic="orders", body=b"x"))
        page.content = mq.namesrv.encode()
        await producer.send(Message(topic="orders", body=b"x"))
