"""A world that exports the handler of single messages."""

from abc import abstractmethod
from typing import Protocol


class Handler(Protocol):
    @abstractmethod
    def handle(self, message) -> None:
        raise NotImplementedError
