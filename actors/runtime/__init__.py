"""Inboxes, handles, supervision: what every actor is made of. Knows no messages."""
