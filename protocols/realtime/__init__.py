"""OpenAI's Realtime events and vLLM's dialect of them."""
