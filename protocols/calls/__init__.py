"""Providers' media streams on the wire."""
