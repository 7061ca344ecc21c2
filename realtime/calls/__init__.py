"""Telephone calls as a pure machine."""
