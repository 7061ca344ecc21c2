"""Transcribing, whatever the model: files and live turns."""
