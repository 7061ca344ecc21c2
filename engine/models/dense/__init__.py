"""Decoders of Llama's shape: every layer attends and has one gated middle."""
