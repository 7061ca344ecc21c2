"""Relays what another front of the cluster has: requests, answers, and WebSockets."""
