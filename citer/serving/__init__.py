"""Answer questions with a router: the deployment, its log, and the server."""
