"""Scheduling policies: who runs, and what share of a step each group of requests has."""
