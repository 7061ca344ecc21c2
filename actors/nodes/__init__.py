"""Engines that run on other machines, and are reached over TCP."""
