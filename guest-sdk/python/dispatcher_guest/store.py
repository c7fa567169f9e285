"""The settings and the key-value stores that the configuration grants."""

from __future__ import annotations

from typing import Any

from .host import HostError, need


class StoreError(Exception):
    """The reason why a call to a store or a setting failed. `code` is access-denied or failed."""

    def __init__(self, code: str, why: object):
        super().__init__(f"{code}: {why}")
        self.code = code


def _asked(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except HostError as error:
        raise StoreError(error.code, error.value) from None


class Store:
    """A key-value store. Values are bytes."""

    def __init__(self, name: str, bucket: Any):
        self.name = name
        self._bucket = bucket

    def get(self, key: str) -> bytes | None:
        """Returns the value, or None if there is none."""
        return _asked(self._bucket.get, key)

    def set(self, key: str, value: bytes | str) -> None:
        _asked(self._bucket.set, key, value.encode() if isinstance(value, str) else bytes(value))

    def delete(self, key: str) -> None:
        _asked(self._bucket.delete, key)

    def __contains__(self, key: str) -> bool:
        return _asked(self._bucket.exists, key)

    def increment(self, key: str, by: int = 1) -> int:
        """Adds to a number atomically and returns the sum. A missing number counts as 0."""
        return _asked(self._bucket.increment, key, by)

    def keys(self) -> list[str]:
        """Returns all keys, in no particular order."""
        return _asked(self._bucket.keys)


def open_store(name: str) -> Store:
    """Opens the store that the configuration grants under this name."""
    return Store(name, _asked(need("store").open, name))


def setting(name: str, default: str | None = None) -> str | None:
    """Returns the setting with this name, or `default` if there is none."""
    value = _asked(need("settings").get, name)
    return default if value is None else value
