"""Connections: bytes of TCP to ASGI messages and back, with every bound on what a peer may hold or cost."""
