"""Methods, their rules and costs, and the choice of the rule to deploy."""
