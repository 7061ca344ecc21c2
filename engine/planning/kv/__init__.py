"""Key-value blocks: pool, prefix cache, and who holds which."""
