"""Qwen3, text only."""
