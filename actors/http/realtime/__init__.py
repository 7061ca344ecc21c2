"""`/v1/realtime`: who may open a session, and its socket."""
