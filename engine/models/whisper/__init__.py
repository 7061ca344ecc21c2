"""OpenAI's Whisper."""
