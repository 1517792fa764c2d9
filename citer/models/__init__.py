"""One model, a pair of models, and the router between them."""
