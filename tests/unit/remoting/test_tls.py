"""TLS on connections: who is let in, who is not, and what half a handshake costs."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from flintmq.format.wire.headers.clients import NoFields
from flintmq.remoting import (
    ConnectError,
    Limits,
    RemotingClient,
    RemotingError,
    RemotingServer,
    TlsError,
    tls_files,
)
from flintmq.remoting.refusal_counts import ADDRESS_CONNECTIONS
from flintmq.remoting.tls_files import (
    SETTLED_NS,
    TlsFiles,
    WatchedContext,
    _FileState,
    client_context,
    server_context,
)
from flintmq.remoting.tls_listener import GreetingPace, ServerTls
from flintmq.settings.tls_settings import TlsClientAuth
from tests.kits.broker.remoting_kit import ECHO, HOST, RawClient, eventually, request, run, serving
from tests.kits.broker.tls_kit import Authority

TIMEOUT_MS = 5000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def tls_of(
    files: TlsFiles, *, enforced: bool = False, auth: TlsClientAuth = TlsClientAuth.NONE
) -> ServerTls:
    context = WatchedContext(lambda: server_context(files, auth), files.paths)
    return ServerTls(context=context, is_enforced=enforced)


@asynccontextmanager
async def asking(
    files: TlsFiles | None, limits: Limits | None = None
) -> AsyncIterator[RemotingClient]:
    context = None if files is None else WatchedContext(lambda: client_context(files), files.paths)
    async with RemotingClient(tls=context, limits=limits) as client:
        yield client


async def echoed(client: RemotingClient, server: RemotingServer, body: bytes = b"hello") -> bytes:
    address = f"{HOST}:{server.ports[0]}"
    answer = await client.call(address, ECHO, NoFields(), body, timeout_ms=TIMEOUT_MS)
    return bytes(answer.body)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_one_port_serves_plain_and_tls_with_large_answers(
    authority: Authority, loop: object
) -> None:
    trusted = TlsFiles(ca_file=str(authority.ca))
    body = bytes(range(256)) * 20_000

    async def talk() -> None:
        async with serving(tls=tls_of(authority.issue("both").files())) as server:
            for files in (trusted, None):
                async with asking(files) as client:
                    answers = [echoed(client, server, body) for _ in range(8)]
                    for answer in await asyncio.gather(*answers):
                        assert answer == body
            await eventually(lambda: not server.connections)

    assert callable(loop)
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(talk(), 60))


async def test_an_enforcing_server_closes_what_begins_without_tls(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    tls = tls_of(authority.issue("strict").files(), enforced=True)
    async with serving(tls=tls) as server, asking(TlsFiles(ca_file=str(authority.ca))) as client:
        async with RawClient.connect(server.ports[0]) as peer:
            await peer.send(request(1, b"plain"))
            assert await peer.is_cut_off()
        assert await echoed(client, server) == b"hello"
    assert "tls.server.mode is enforcing" in caplog.text


async def test_a_client_trusts_neither_strangers_nor_other_hosts(authority: Authority) -> None:
    elsewhere = authority.issue("elsewhere", "broker.example")
    trusted = str(authority.ca)
    async with serving(tls=tls_of(elsewhere.files())) as server:
        async with asking(TlsFiles(ca_file=trusted)) as client:
            with pytest.raises(ConnectError, match=r"not trusted.*IP address mismatch"):
                await echoed(client, server)
        async with asking(TlsFiles()) as client:
            with pytest.raises(ConnectError, match="its certificate is not trusted"):
                await echoed(client, server)
        for lenient in (
            TlsFiles(ca_file=trusted, check_hostname=False),
            TlsFiles(verify=False),
        ):
            async with asking(lenient) as client:
                assert await echoed(client, server) == b"hello"


async def test_clients_have_to_show_a_trusted_certificate_if_a_server_says_so(
    authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "stranger").issue("me")
    known, ca = authority.issue("me"), str(authority.ca)
    files = authority.issue("asks").files(ca_file=ca)
    async with serving(tls=tls_of(files, auth=TlsClientAuth.REQUIRE)) as server:
        async with asking(known.files(ca_file=ca)) as client:
            assert await echoed(client, server) == b"hello"
        for wrong in (TlsFiles(ca_file=ca), stranger.files(ca_file=ca)):
            async with asking(wrong) as client:
                with pytest.raises(RemotingError):
                    await echoed(client, server)
    async with serving(tls=tls_of(files, auth=TlsClientAuth.OPTIONAL)) as server:
        async with asking(TlsFiles(ca_file=ca)) as client:
            assert await echoed(client, server) == b"hello"
        async with asking(stranger.files(ca_file=ca)) as client:
            with pytest.raises(RemotingError):
                await echoed(client, server)


async def test_nothing_older_than_tls_1_2_is_spoken(authority: Authority) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with (
        serving(tls=tls_of(authority.issue("new").files())) as server,
        RemotingClient(tls=WatchedContext(lambda: old)) as client,
    ):
        with pytest.raises(ConnectError):
            await echoed(client, server)


async def test_renewed_files_are_used_without_a_restart_and_broken_ones_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    used = first.issue("server")
    tls = tls_of(used.files())
    async with (
        serving(tls=tls) as server,
        asking(TlsFiles(ca_file=str(first.ca))) as old,
        asking(TlsFiles(ca_file=str(second.ca))) as new,
    ):
        assert await echoed(old, server) == b"hello"
        renewed = second.issue("server")
        used.cert.write_bytes(renewed.cert.read_bytes())
        tls.context.reload()  # The key does not belong to it yet.
        assert "the old ones hold" in caplog.text
        async with asking(TlsFiles(ca_file=str(first.ca))) as another:
            assert await echoed(another, server) == b"hello"
        used.key.write_bytes(renewed.key.read_bytes())

        async def is_renewed() -> bool:
            try:
                return await echoed(new, server) == b"hello"
            except ConnectError:
                return False

        while not await is_renewed():  # noqa: ASYNC110 - files set no event
            await asyncio.sleep(0.05)
        assert await echoed(old, server) == b"hello"  # Its connection is as it was.


def test_files_that_were_read_while_they_were_written_are_read_again(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two writes within one tick of the clock of a file system look alike from outside."""
    used, other = authority.issue("used"), authority.issue("other")
    now_ns, written_ns = 10 * SETTLED_NS, 1
    monkeypatch.setattr(tls_files, "_file_state", lambda path: _FileState(1, 1, 1, written_ns))
    monkeypatch.setattr("flintmq.remoting.tls_files.time.time_ns", lambda: now_ns)
    context = tls_of(used.files()).context
    first = context._context
    written_ns = now_ns
    right = used.key.read_bytes()
    used.key.write_bytes(other.key.read_bytes())
    context.reload()
    assert context._context is first
    assert "the old ones hold" in caplog.text
    used.key.write_bytes(right)
    context.reload()
    second = context._context
    assert second is not first
    now_ns += 2 * SETTLED_NS
    context.reload()
    settled = context._context
    assert settled is not second
    context.reload()
    assert context._context is settled


@pytest.mark.parametrize("cut", [0, 0.3, 0.7])
async def test_files_that_change_under_many_connections_refuse_nobody(
    authority: Authority, cut: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of a file, an empty one and one that is gone count as no file: the old ones hold."""
    used = authority.issue(f"worn{cut}")
    texts = {path: path.read_bytes() for path in (used.cert, used.key)}
    tls, trusted = tls_of(used.files()), TlsFiles(ca_file=str(authority.ca))

    async def ask_once() -> None:
        async with asking(trusted) as client:
            assert await echoed(client, server) == b"hello"

    async with serving(tls=tls) as server:
        for path, text in texts.items():
            for broken in (text[: int(len(text) * cut)], None, text):
                path.unlink() if broken is None else path.write_bytes(broken)
                tls.context._next_look = 0.0
                await asyncio.gather(*(ask_once() for _ in range(10)))
    assert "the old ones hold" in caplog.text


async def test_half_handshakes_are_bounded_in_number_and_time(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(handshake_count_max=8, handshake_timeout_ms=300, connection_count_max=40)
    hello = bytes.fromhex("16030100c8010000c40303")  # A handshake that is never finished.
    tls = tls_of(authority.issue("busy").files())
    async with serving(tls=tls, limits=limits) as server:
        peers = [socket.create_connection((HOST, server.ports[0])) for _ in range(20)]
        for peer in peers:
            peer.sendall(hello)
            peer.settimeout(10)
        for peer in peers:
            # Some are closed at once, the others when their time is over.
            assert await asyncio.to_thread(_drained, peer)
        silent = [socket.create_connection((HOST, server.ports[0])) for _ in range(60)]
        await eventually(lambda: server.waiting_count == 40)
        refused = 0
        for peer in reversed(silent):
            peer.settimeout(10 if refused < 20 else 0.01)
            refused += await asyncio.to_thread(_drained, peer)
        assert refused == 20
        async with asking(TlsFiles(ca_file=str(authority.ca))) as client:
            await eventually(lambda: server.waiting_count == 0)
            assert await echoed(client, server) == b"hello"
    assert "handshakes are under way" in caplog.text
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def _drained(peer: socket.socket) -> bool:
    """Close a peer; return whether the other side had closed before."""
    with peer:
        try:
            while peer.recv(4096):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True


@pytest.mark.parametrize("has_tls", [False, True])
async def test_one_address_has_its_share_of_connections(
    authority: Authority, has_tls: bool
) -> None:
    tls = tls_of(authority.issue("shared").files()) if has_tls else None
    limits = Limits(address_connection_count_max=3)

    def connect(source: str) -> socket.socket:
        return socket.create_connection((HOST, server.ports[0]), source_address=(source, 0))

    async with serving(tls=tls, limits=limits) as server:
        kept = [connect("127.0.0.1") for _ in range(3)]
        await eventually(lambda: len(server.connections) + server.waiting_count == 3)
        refused = connect("127.0.0.1")
        refused.settimeout(10)
        assert await asyncio.to_thread(_drained, refused)
        kept.append(connect("127.0.0.2"))
        await eventually(lambda: len(server.connections) + server.waiting_count == 4)
        kept.pop(0).close()
        await eventually(lambda: len(server.connections) + server.waiting_count == 3)
        kept.append(connect("127.0.0.1"))
        await eventually(lambda: len(server.connections) + server.waiting_count == 4)
        assert server.refused[ADDRESS_CONNECTIONS] == 1
        for one in kept:
            one.close()


async def test_a_server_without_tls_says_what_a_peer_wants(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as server, asking(TlsFiles(ca_file=str(authority.ca))) as client:
        with pytest.raises(ConnectError):
            await echoed(client, server)
    assert "a TLS handshake, and there is no TLS here" in caplog.text


def test_a_server_that_stops_lets_nobody_wait(authority: Authority) -> None:
    async def stop() -> None:
        async with serving(tls=tls_of(authority.issue("ends").files())) as server:
            peer = socket.create_connection((HOST, server.ports[0]))
            await eventually(lambda: server.waiting_count == 1)
        assert _drained(peer)

    run(stop())


def test_files_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path) -> None:
    hidden = authority.issue("hidden", password="a word")
    good = authority.issue("good")
    server_context(hidden.files(key_password="a word"), TlsClientAuth.NONE)
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    for files, words in (
        (hidden.files(), "hidden.key"),
        (hidden.files(key_password="another"), "hidden.key"),
        (TlsFiles(cert_file=str(good.cert), key_file=str(hidden.key)), "good.pem"),
        (TlsFiles(cert_file=str(tmp_path / "no.pem"), key_file=str(good.key)), "no.pem: No such"),
        (TlsFiles(cert_file=str(broken), key_file=str(good.key)), "broken.pem"),
    ):
        with pytest.raises(TlsError, match=words) as raised:
            server_context(files, TlsClientAuth.NONE)
        assert "another" not in str(raised.value)
    with pytest.raises(TlsError, match=r"broken\.pem: no certificates in PEM"):
        client_context(TlsFiles(ca_file=str(broken)))
    assert "a word" not in repr(hidden.files(key_password="a word"))


async def test_only_so_many_go_on_in_one_turn_of_the_loop() -> None:
    pace, loop = GreetingPace(2), asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(7)]
    for future in futures:
        pace.add(future)
    futures[1].cancel()  # Who has given up takes nobody's place.
    done = []
    for _ in range(4):
        await asyncio.sleep(0)
        done.append(sum(future.done() and not future.cancelled() for future in futures))
    assert done == [2, 4, 6, 6]


async def test_a_handshake_that_comes_byte_by_byte_is_finished(authority: Authority) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = client_context(TlsFiles(ca_file=str(authority.ca)))
    tls = trusting.wrap_bio(incoming, outgoing, server_hostname=HOST)
    async with (
        serving(tls=tls_of(authority.issue("patient").files())) as server,
        RawClient.connect(server.ports[0]) as peer,
    ):
        for _ in range(10):
            is_done = False
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                is_done = True
            for one in outgoing.read():
                peer.writer.write(bytes([one]))
                await peer.writer.drain()
            if is_done:
                break
            incoming.write(await peer.reader.read(4096))
        await eventually(lambda: len(server.connections) == 1)


async def test_nothing_of_tls_is_made_for_half_a_hello(authority: Authority) -> None:
    made = []

    class Watched(WatchedContext):
        async def current(self) -> ssl.SSLContext:
            made.append(1)
            return await super().current()

    files = authority.issue("half").files()
    context = Watched(lambda: server_context(files, TlsClientAuth.NONE))
    limits = Limits(handshake_timeout_ms=200)
    async with serving(tls=ServerTls(context=context, is_enforced=True), limits=limits) as server:
        for start in ("16", "160301", "16030100c8", "16030100c8010000c40303"):
            with socket.create_connection((HOST, server.ports[0])) as peer:
                peer.sendall(bytes.fromhex(start))
                peer.settimeout(10)
                assert await asyncio.to_thread(_drained, peer)
        # One that leaves amid its hello is no failure of time.
        with socket.create_connection((HOST, server.ports[0])) as peer:
            peer.sendall(bytes.fromhex("16030100c801"))
        await eventually(lambda: server.waiting_count == 0)
    assert not made
