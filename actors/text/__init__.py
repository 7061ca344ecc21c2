"""Prompts and answers of text requests."""
