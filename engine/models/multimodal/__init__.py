"""Models of `transformers` that see and hear, run by its own code around our paged cache."""
