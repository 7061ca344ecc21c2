"""Telephone calls: the routes that accept and start them."""
