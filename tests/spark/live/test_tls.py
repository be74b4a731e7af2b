"""Reading and writing live topics of servers that take nothing but TLS, by options."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.errors import FlintError
from flintmq.spark.live import live_session
from flintmq.testing import EmbeddedCluster
from tests.kits.broker.tls_kit import Authority, Issued
from tests.kits.spark.live_kit import StreamRun, bodies, read, texts
from tests.kits.spark.sink_kit import numbered, send_rows


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def encrypted(authority: Authority) -> Iterator[EmbeddedCluster]:
    """Servers to which clients, too, have to show a certificate."""
    settings: dict[str, Any] = authority.settings(authority.issue("server"))
    # The broker is a client of the name server.
    own = authority.issue("broker")
    settings |= {
        "tls.server.mode": "enforcing",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": authority.ca,
        "tls.client.certPath": own.cert,
        "tls.client.keyPath": own.key,
    }
    with EmbeddedCluster(**settings) as running:
        yield running


def options(authority: Authority, shown: Issued) -> dict[str, Any]:
    return {
        "useTLS": "true",
        "tls.caFile": str(authority.ca),
        "tls.certFile": str(shown.cert),
        "tls.keyFile": str(shown.key),
    }


def test_rows_are_written_and_read_by_tls(authority: Authority, encrypted: EmbeddedCluster) -> None:
    tls = options(authority, authority.issue("spark"))
    send_rows(encrypted.namesrv, numbered(range(20)), **tls)
    assert bodies(read(encrypted.namesrv, subscribe="orders", **tls)) == texts(range(20))
    wanted = {"subscribe": "orders", "startingOffsets": "earliest", **tls}
    with StreamRun(encrypted.namesrv, **wanted) as stream:
        assert bodies(stream.everything()) == texts(range(20))


def test_who_does_not_speak_tls_or_is_not_trusted_reads_nothing(
    authority: Authority,
    encrypted: EmbeddedCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_session, "PAUSE_FIRST_S", 0.0)
    tls = options(authority, authority.issue("spark"))
    send_rows(encrypted.namesrv, numbered(range(2)), **tls)
    stranger = Authority(tmp_path / "elsewhere")
    for wrong in (
        {},
        {"useTLS": "true"},
        options(stranger, authority.issue("spark-again")),
        options(authority, stranger.issue("stranger")),
    ):
        with pytest.raises(FlintError):
            read(encrypted.namesrv, subscribe="orders", **wrong)
