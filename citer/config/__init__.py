"""The sections of `params.yaml`."""
