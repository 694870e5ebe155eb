"""The self-signed certificate of TLS test mode.

Source:
    remoting/netty/TlsHelper.java, which has Netty's SelfSignedCertificate make one.
"""

import os
import ssl
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make_test_certificate() -> tuple[bytes, bytes]:
    """Return (private key, certificate), both PEM. Nobody can check it: clients of test mode trust everything."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "maxq test mode")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(9999, 12, 31, tzinfo=UTC))
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key_pem, certificate.public_bytes(serialization.Encoding.PEM)


def load_test_certificate(context: ssl.SSLContext) -> None:
    """Give a server's context a new test certificate."""
    key, certificate = make_test_certificate()
    # Python's ssl reads keys from files only; this file is readable by this user alone and is deleted at once.
    descriptor, name = tempfile.mkstemp(prefix="maxq-tls-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key + certificate)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()
