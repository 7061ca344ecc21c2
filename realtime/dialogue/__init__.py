"""Sessions that answer: their conversation, their responses, and what they look at."""
