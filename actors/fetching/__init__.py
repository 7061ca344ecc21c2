"""Files by address: which may be fetched, and how."""
