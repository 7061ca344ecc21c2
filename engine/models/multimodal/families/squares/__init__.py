"""Families whose pictures are squares, or in a shape of their own."""
