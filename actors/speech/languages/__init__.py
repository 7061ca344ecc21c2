"""In which language each range of a recording is transcribed."""
