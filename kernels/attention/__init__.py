"""Attention: dense, paged and cross, and the KV cache it reads."""
