"""Mutual TLS between a server and the engines of other machines: both show a certificate of one authority."""

from __future__ import annotations

import ssl
from pathlib import Path

from ..errors import ConfigError


def tls_context(
    cert: Path | None, key: Path | None, ca: Path | None, *, prefix: str, is_server: bool
) -> ssl.SSLContext | None:
    """From PEM files; None where none is named. The options of the files are called `prefix`-cert, -key and
    -ca. Raises ConfigError for some of three, and files that are none."""
    named = [name for name, path in (("cert", cert), ("key", key), ("ca", ca)) if path is not None]
    if cert is None or key is None or ca is None:
        if named:
            raise ConfigError(
                f"--{prefix}-{named[0]} is given without the others; allowed: --{prefix}-cert, "
                f"--{prefix}-key and --{prefix}-ca together"
            )
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"--{prefix}-cert is {cert}, --{prefix}-key is {key}: {error}; allowed: PEM files of a "
            "certificate and its key"
        ) from None
    try:
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--{prefix}-ca is {ca}: {error}; allowed: a PEM file of certificates") from None
    return context
