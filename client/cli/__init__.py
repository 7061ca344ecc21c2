"""The client's commands: transcribe, listen, chat, embed and watch."""
