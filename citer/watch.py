"""Watches the agreement of the two models, as audits see it, for drift."""
