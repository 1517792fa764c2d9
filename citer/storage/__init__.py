"""Files: tables with a schema, written aside and renamed; digests; YAML."""
