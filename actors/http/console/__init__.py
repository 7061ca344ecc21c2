"""The console: the page in which a server is tried, and its files."""
