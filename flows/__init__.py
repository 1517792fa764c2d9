"""The pipeline: a Prefect flow that runs DVC's stages and registers the results in MLflow."""

import os

# Set before Prefect and MLflow are imported. They send no telemetry and load no pickle.
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
# Prefect's default lets the pages of all sites use a server that a run starts.
os.environ.setdefault("PREFECT_SERVER_CORS_ALLOWED_ORIGINS", "http://127.0.0.1")
# Prefect's default of 20 seconds is too short for a server's first start on a busy machine.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
# Prefect's default is 180 seconds. flows/notify/automations.yaml marks a run as crashed after 90
# seconds without a heartbeat.
os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
