"""The signed content of a request, and its signature.

Source:
    acl/common/{AclUtils,AclSigner,SessionCredentials}.java,
    auth/authentication/builder/DefaultAuthenticationContextBuilder.java.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final

from maxq.codes import MQVersion
from maxq.lazy_dataclass import dataclass

if TYPE_CHECKING:  # imported for types only: `hmac` loads OpenSSL, which most clients do not need
    from maxq.auth.signing_cy import SigningKey

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"  # added behind the back of the hooks of clients up to 4.9.3


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key and its secret; prints without the secrets."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def signing_key(self) -> "SigningKey":
        """Returns the key with which requests are signed."""
        from maxq.auth.signing_cy import SigningKey

        return SigningKey(self.secret_key.encode("utf-8", "replace"))


def signed_content(ext: Mapping[str, str], *, version: int = MQVersion.V5_0_0) -> bytes:
    """Return the values of the header fields in the order of their keys, without the signature: the first part of the
    signed content; the body follows.

    Args:
        version: of the client. Clients up to 4.9.3 do not sign `_UNIQUE_KEY_QUERY`.
    """
    left_out = (SIGNATURE, UNIQUE_KEY_QUERY) if version <= MQVersion.V4_9_3 else (SIGNATURE,)
    keys = sorted(ext) if all(map(str.isascii, ext)) else sorted(ext, key=_java_order)
    return "".join([ext[key] for key in keys if key not in left_out]).encode("utf-8", "replace")


def unsigned(ext: Mapping[str, str]) -> dict[str, str]:
    """Return header fields without those of the signature. A signature covers values, but neither the names of the
    fields nor the request code: the holder of one can use it for other requests."""
    return {name: value for name, value in ext.items() if name not in (ACCESS_KEY, SECURITY_TOKEN, SIGNATURE)}


def _java_order(key: str) -> bytes:
    """Return a sort key for Java's order of strings, by UTF-16 code unit."""
    return key.encode("utf-16-be", "surrogatepass")


def sign(ext: dict[str, str], body: bytes, credentials: Credentials, key: "SigningKey") -> None:
    """Put access key, security token and signature into the header fields `ext` of a request with this body.

    `key` is the SigningKey of the credentials.
    """
    ext[ACCESS_KEY] = credentials.access_key
    if credentials.security_token:
        ext[SECURITY_TOKEN] = credentials.security_token
    ext[SIGNATURE] = key.sign(signed_content(ext), body).decode()
