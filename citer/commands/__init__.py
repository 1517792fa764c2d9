"""The commands of `citer`. Each imports the heavy libraries it needs when it is called."""
