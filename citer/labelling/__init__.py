"""Preference labels: scores of references, rollouts and the truth table."""
