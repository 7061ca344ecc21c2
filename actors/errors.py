"""Errors of options and addresses: each is one line for whoever starts the server."""

from __future__ import annotations


class ConfigError(ValueError):
    """An option has a value that is not allowed; the message is one line for a person."""


class AddressError(OSError):
    """The address cannot be listened on; the message is one line for a person."""
