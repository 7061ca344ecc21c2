"""Gemmas whose decoders are given more of a prompt than embeddings: placeholders as padding, inputs of each
layer, or how far the prompt reaches."""
