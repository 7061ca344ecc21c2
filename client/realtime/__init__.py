"""Live sessions: pure machines, and their sync and async sockets."""
