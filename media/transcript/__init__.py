"""Answers of speech models, checked against the sound and joined into transcripts."""
