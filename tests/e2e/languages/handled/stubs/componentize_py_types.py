"""As much of what componentize-py generates as the adapter needs to be loaded without it."""


class Err(Exception):
    def __init__(self, value):
        self.value = value
