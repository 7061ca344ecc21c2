"""What relays use: HTTP and WebSocket connections to another server, and which header fields pass."""
