"""OpenAI's `/v1/responses` on the wire."""
