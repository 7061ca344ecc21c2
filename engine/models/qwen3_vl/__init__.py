"""Qwen3-VL: images and video in a language model."""
