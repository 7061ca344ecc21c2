"""What several dialects share: JSON bodies, sampling fields, audio formats."""
