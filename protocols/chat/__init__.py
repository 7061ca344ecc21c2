"""Chat completions, completions and tokenization on the wire."""
