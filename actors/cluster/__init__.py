"""Engines on the machines of a Ray cluster: started, listed for servers, scaled and replaced."""
