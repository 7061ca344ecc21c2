"""Anthropic's `/v1/messages` on the wire."""
