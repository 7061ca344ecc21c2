"""What to compute next: torch-free."""
