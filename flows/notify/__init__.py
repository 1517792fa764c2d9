"""Events for Prefect's server, and the automations that act on them."""
