"""The commands of `citer`. Each imports its heavy libraries only when it is called."""
