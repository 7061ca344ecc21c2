"""Embeddings on the wire; rerank and score belong beside them."""
