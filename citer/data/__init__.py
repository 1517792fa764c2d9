"""Questions: read, checked, split, and encoded as prompts."""
