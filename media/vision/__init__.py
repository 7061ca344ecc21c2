"""Images and video to pixels and patches."""
