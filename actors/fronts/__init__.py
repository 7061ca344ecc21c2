"""The servers of one cluster that face clients: how they know of each other, and reach each other."""
