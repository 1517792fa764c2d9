"""The embedded pair and its questions."""
