"""Where speech lies in samples, and when words were spoken."""
