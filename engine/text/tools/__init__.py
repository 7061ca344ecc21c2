"""What a model writes → text, reasoning and tool calls, while it is being written: pure, and torch-free."""
