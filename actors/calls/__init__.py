"""Telephone calls: the actor of a call, and the callbacks that report it."""
