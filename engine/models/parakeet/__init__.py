"""NVIDIA's Parakeet CTC: a FastConformer over a whole window, and a CTC head."""
