"""Layers that mix tokens through a state of one size instead of attention."""
