"""Certificates and node keys, made on the spot: an authority for one federation, its server's certificate, EC keys."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any, NamedTuple

_DAYS = 365


class Certificates(NamedTuple):
    authority: Path  # ca.pem: what nodes need to know the server by
    certificate: Path
    key: Path


def certificates(folder: Path, hosts: list[str]) -> Certificates:
    """A new authority and the server's certificate for these names and addresses; those there are kept."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    found = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    if all(path.exists() for path in found):
        return found
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)
    span = (now - datetime.timedelta(minutes=5), now + datetime.timedelta(days=_DAYS))

    def named(text: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    ca_key, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = named("Coterie federation")
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    ca = (
        x509.CertificateBuilder()
        .subject_name(issuer).issuer_name(issuer).public_key(ca_key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(span[0]).not_valid_after(span[1])
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )  # fmt: skip
    names = x509.SubjectAlternativeName(
        [_name(x509, host) for host in dict.fromkeys(["localhost", "127.0.0.1", *hosts])]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(named(hosts[0] if hosts else "localhost")).issuer_name(issuer).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(span[0]).not_valid_after(span[1])
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA384())
    )  # fmt: skip
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    _secret(found.key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    found.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
    found.authority.write_bytes(ca.public_bytes(Encoding.PEM))  # the authority's key is not kept: it signs nothing more
    return found


def node_key(folder: Path) -> tuple[Path, Path]:
    """(private, public) key files of a node; those there are kept."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    private, public = folder / "node.key", folder / "node.pub"
    if not private.exists():
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP384R1())
        _secret(private, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
    return private, public


def _name(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
