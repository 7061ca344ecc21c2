"""Speech model families: what the one recipe needs to know of each."""
