"""Files to text: transcription and translation."""
