"""The methods side by side: tables, figures and the page of a retraining."""
