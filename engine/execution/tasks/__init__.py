"""What a step makes of hidden states, a file for each task of `protocols/engine/messages.py`."""
