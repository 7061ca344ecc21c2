"""An engine in a process of its own: the seam of `actors/inference/client.py` as messages over a stream."""
