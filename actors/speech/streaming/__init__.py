"""Speech models that stream by themselves: audio goes in as it comes, and text that comes out is final."""
