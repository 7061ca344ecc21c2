"""Families that hear a recording as a whole."""
