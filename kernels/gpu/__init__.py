"""Triton kernels: the same operations on GPUs."""
