"""`citer serve`: an OpenAI-compatible server on the engine of `citer.decoding`."""
