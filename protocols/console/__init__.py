"""The routes of the console, the page in which a server is tried."""
