"""Who a request comes from, as a gateway tells the server behind it: a header field that is signed.

    Sensorium-Caller: v1 t=1767225600 a=192.0.2.7 k=9f86d081… s=5994471a…

`t` is when it was signed (Unix seconds), `a` the client's address, `k` the digest of its API key or `-`, `s`
an HMAC-SHA256 (RFC 2104) of the other three together with the request's method and target, so that a field
that leaks is good for one request of one kind, for a short time. Pure; `actors/gateway/` signs,
`actors/transport/trusted_proxies.py` verifies.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

import msgspec

from ..errors import BadRequestError

HEADER: Final = b"sensorium-caller"
MAX_AGE_S: Final = 60.0
"""By how much the clocks of a gateway and a server may differ, the way between them included."""
MIN_SECRET_CHARS: Final = 16
_FIELD: Final = re.compile(rb"v1 t=(\d{1,12}) a=([0-9A-Fa-f.:]{1,45}) k=(-|[0-9a-f]{64}) s=([0-9a-f]{64})")


class InvalidCallerError(BadRequestError):
    """The field is not what a gateway with the same secret and clock would have sent."""

    default_code = "invalid_caller"


class SignedCaller(msgspec.Struct, frozen=True):
    """The client of a gateway."""

    address: str
    key_digest: str = ""
    """SHA-256 of its API key, in hexadecimal digits; empty if it has none."""


def sign(caller: SignedCaller, secret: bytes, *, now_s: float, method: bytes, target: bytes) -> bytes:
    """The value of the header field for one request."""
    said = b"v1 t=%d a=%s k=%s" % (now_s, caller.address.encode(), caller.key_digest.encode() or b"-")
    return b"%s s=%s" % (said, _mac(secret, said, method, target))


def verify(value: bytes, secret: bytes, *, now_s: float, method: bytes, target: bytes) -> SignedCaller:
    """What a value says. Raises InvalidCallerError."""
    found = _FIELD.fullmatch(value)
    if found is None:
        raise InvalidCallerError("The header field `Sensorium-Caller` is malformed.")
    said = value[: value.rindex(b" s=")]
    if not hmac.compare_digest(_mac(secret, said, method, target), found[4]):
        raise InvalidCallerError(
            "The header field `Sensorium-Caller` is signed with another secret, or for another request; give "
            "the gateway and the server the same `--caller-secret`."
        )
    late_s = now_s - int(found[1])
    if abs(late_s) > MAX_AGE_S:
        raise InvalidCallerError(
            f"The header field `Sensorium-Caller` was signed {late_s:.0f} s ago; allowed: {MAX_AGE_S:.0f} s "
            "either way. Set the clocks of the gateway and the server."
        )
    return SignedCaller(found[2].decode(), found[3].decode().strip("-"))


def _mac(secret: bytes, said: bytes, method: bytes, target: bytes) -> bytes:
    """Lengths stand before what they are of, so that no two requests are signed as the same bytes."""
    parts = b"".join(b"%d:%s" % (len(part), part) for part in (said, method, target))
    return hmac.digest(secret, parts, hashlib.sha256).hex().encode()
