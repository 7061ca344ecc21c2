"""Which text of a growing transcript is shown."""
