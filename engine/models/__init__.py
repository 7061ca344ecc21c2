"""What a model is, and one folder a family."""
