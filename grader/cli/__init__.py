"""The `grade` command: a verb per module, each imported only when it is used."""
