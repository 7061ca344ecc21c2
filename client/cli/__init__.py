"""The client's commands: transcribe, listen, chat and watch."""
