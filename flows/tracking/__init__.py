"""MLflow: runs of retrainings, registered routers, and the store that holds both."""
