"""One engine: scheduler, executor, encoder cache and detokenizer as actors."""
