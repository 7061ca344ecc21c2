"""Between text and tokens: torch-free."""
