"""Messages between the server's actors and an engine."""
