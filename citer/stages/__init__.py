"""The stages of dvc.yaml, a short module each."""
