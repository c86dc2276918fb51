"""Running scenarios and keeping what they say."""
