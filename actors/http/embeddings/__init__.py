"""The routes of vectors of texts: embeddings; rerank and score belong beside them."""
