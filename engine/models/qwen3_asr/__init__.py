"""Qwen3-ASR: speech to text in a language model."""
