"""Families whose decoders read the tokens of placeholders as padding."""
