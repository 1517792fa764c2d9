"""Who runs the units of a stage: this process, others on this machine, or Ray."""
