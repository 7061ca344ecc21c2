"""Products with weights: dense and quantized."""
