"""One live session: its socket, audio, turns, and how it outlives a lost connection."""
