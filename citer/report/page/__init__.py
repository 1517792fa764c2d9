"""The report page: one HTML file without links to anything else."""
