"""A file for each family of models that see or hear: what `engine/models/multimodal/family.py` asks of it."""
