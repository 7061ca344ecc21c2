"""NVIDIA's Nemotron ASR: a FastConformer that encodes chunk by chunk, and an RNN transducer."""
