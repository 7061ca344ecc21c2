"""Routes about the server itself: models, health, metrics."""
