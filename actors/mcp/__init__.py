"""MCP servers' tools: asked for, and called."""
