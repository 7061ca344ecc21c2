"""Bytes → samples → features, incrementally, with limits and content hashes. No models, tasks or torch."""
