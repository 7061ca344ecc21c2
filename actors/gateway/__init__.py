"""A gateway in front of several servers: HTTP, events and WebSockets, without a model."""
