"""The contract's nouns, which no check of a project needs."""
