"""Speech models that see a whole window of audio and give its tokens with frames at once: CTC."""
