"""Sound that arrives in pieces: containers taken apart and decoded as they come. Read `decoder.py` first."""
