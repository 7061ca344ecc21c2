"""Where turns begin and end, and when hypotheses are requested."""
