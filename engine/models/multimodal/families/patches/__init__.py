"""Families whose pictures are patches of any grid, with something of their own."""
