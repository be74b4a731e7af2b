"""Certificates for tests, made on the spot, and servers with them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from flintmq.remoting.tls_files import TlsFiles

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key in files."""

    cert: Path
    key: Path

    def files(self, *, ca_file: str | None = None, key_password: str | None = None) -> TlsFiles:
        return TlsFiles(
            cert_file=str(self.cert),
            key_file=str(self.key),
            ca_file=ca_file,
            key_password=key_password,
        )


class Authority:
    """Issues certificates; ``ca`` is the file by which they are trusted."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._authority = trustme.CA()
        self.ca = directory / "ca.pem"
        self._authority.cert_pem.write_to_path(self.ca)

    def issue(self, name: str, *hosts: str, password: str | None = None) -> Issued:
        """Make a certificate for hosts, 127.0.0.1 unless given; keys are PKCS #8, as Java reads."""
        made = self._authority.issue_cert(*(hosts or (HOST,)))
        issued = Issued(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        issued.cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        key = load_pem_private_key(made.private_key_pem.bytes(), None)
        hidden: KeySerializationEncryption = (
            NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        )
        issued.key.touch(mode=0o600)
        issued.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden))
        return issued

    def settings(self, server: Issued, **more: str) -> dict[str, object]:
        """Return what a server needs for TLS, also when it asks others."""
        return {
            "tls.server.certPath": server.cert,
            "tls.server.keyPath": server.key,
            "tls.client.trustCertPath": self.ca,
            **{key.replace("__", "."): value for key, value in more.items()},
        }
