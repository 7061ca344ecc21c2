"""Text generation: chat completions, completions and token routes."""
