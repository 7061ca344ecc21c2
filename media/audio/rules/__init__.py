"""How sound becomes features, where it is not by a window of mel bands: a file for each way."""
