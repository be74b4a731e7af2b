"""TLS as the official Java clients speak it, releases 4.9.8 and 5.3.3."""

from pathlib import Path
from typing import Final

import pytest

from flintmq import Message, Producer, TlsFiles
from tests.kits.broker.tls_kit import Authority, Issued
from tests.kits.processes.java_clients import find_clients, run_scenarios, went_well
from tests.kits.processes.java_process import JavaProcessError
from tests.kits.processes.serving import Serving

pytestmark = pytest.mark.interop

SCENARIOS: Final = ("sync", "batch", "push", "pull", "admin-broker")
ENFORCING: Final = {"tls.server.mode": "enforcing"}
CLIENT_AUTH: Final = {"tls.server.need.client.auth": "require", "tls.server.authClient": "true"}


def flags(ca: Path, own: Issued | None = None) -> list[str]:
    """Return the system properties of a Java client that trusts by a file."""
    found = [
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={ca}",
    ]
    if own is not None:
        found += [f"-Dtls.client.certPath={own.cert}", f"-Dtls.client.keyPath={own.key}"]
    return found


def is_refused(version: str, home: Path, namesrv: str, more: list[str]) -> bool:
    """Return whether a Java client finds no way to send."""
    try:
        told = run_scenarios(find_clients(version), home, namesrv, ["sync"], flags=more)
    except JavaProcessError as error:
        return "connect to" in str(error) or "No route info" in str(error)
    return str(told["sync"].lines[-1]["kind"]) == "failed"


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_clients_work_with_certificates_on_both_sides(version: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    server, client = authority.issue("server"), authority.issue("client")
    settings = {
        **authority.settings(server),
        **ENFORCING,
        **CLIENT_AUTH,
        "tls.server.trustCertPath": authority.ca,
        "tls.client.certPath": client.cert,
        "tls.client.keyPath": client.key,
    }
    with Serving(tmp_path / "data", settings) as servers:
        told = run_scenarios(
            find_clients(version),
            tmp_path / "java",
            servers.namesrv,
            SCENARIOS,
            flags=flags(authority.ca, client),
        )
        for scenario in SCENARIOS:
            went_well(told, scenario)
        # Without a certificate of its own it gets nowhere.
        assert is_refused(version, tmp_path / "java", servers.namesrv, flags(authority.ca))
        ours = TlsFiles(
            ca_file=str(authority.ca), cert_file=str(client.cert), key_file=str(client.key)
        )
        with Producer(namesrv=servers.namesrv, group="ours", tls=ours) as producer:
            producer.send(Message(topic="ours", body=b"by TLS"))
    lines = servers.log.read_text().splitlines()
    assert [line for line in lines if " ERROR " in line or "Traceback" in line] == []


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_one_port_serves_java_clients_with_tls_and_without(version: str, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "certificates"), Authority(tmp_path / "stranger")
    with Serving(tmp_path / "data", authority.settings(authority.issue("server"))) as servers:
        for more in ([], ["-Dtls.enable=true"], flags(authority.ca)):
            told = run_scenarios(
                find_clients(version), tmp_path / "java", servers.namesrv, ["sync"], flags=more
            )
            went_well(told, "sync")
        assert is_refused(version, tmp_path / "java", servers.namesrv, flags(stranger.ca))
