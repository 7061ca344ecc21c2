"""Any causal language model of transformers, on our paged cache."""
