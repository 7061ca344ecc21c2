"""Transcription requests, transcripts and subtitles on the wire."""
