"""An HTTP server that answers OpenAI's API with a routed pair, in one process."""
