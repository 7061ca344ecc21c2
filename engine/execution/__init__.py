"""Computing it: torch."""
