"""Files and streams of bytes to samples and features."""
