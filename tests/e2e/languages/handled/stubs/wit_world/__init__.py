"""Of no world: a stub."""
