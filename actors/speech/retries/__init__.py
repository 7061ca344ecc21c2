"""Ranges of a recording that are transcribed again: other temperatures, doubtful coverage."""
