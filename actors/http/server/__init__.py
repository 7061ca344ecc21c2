"""Routes about the server itself: models, probes, metrics."""
