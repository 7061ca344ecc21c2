"""Encoder outputs: the cache by content hash, and who waits for room in it."""
