"""Settings, and keys with values, that the configuration grants."""

from __future__ import annotations

from typing import Any

from .host import HostError, need


class StoreError(Exception):
    """Why a store or a setting was not read or written: `code` is access-denied or failed."""

    def __init__(self, code: str, why: object):
        super().__init__(f"{code}: {why}")
        self.code = code


def _asked(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except HostError as error:
        raise StoreError(error.code, error.value) from None


class Store:
    """Keys and their values, which are bytes."""

    def __init__(self, name: str, bucket: Any):
        self.name = name
        self._bucket = bucket

    def get(self, key: str) -> bytes | None:
        """The value, or None if there is none."""
        return _asked(self._bucket.get, key)

    def set(self, key: str, value: bytes | str) -> None:
        _asked(self._bucket.set, key, value.encode() if isinstance(value, str) else bytes(value))

    def delete(self, key: str) -> None:
        _asked(self._bucket.delete, key)

    def __contains__(self, key: str) -> bool:
        return _asked(self._bucket.exists, key)

    def increment(self, key: str, by: int = 1) -> int:
        """Adds to a number, from 0, in one step; the sum."""
        return _asked(self._bucket.increment, key, by)

    def keys(self) -> list[str]:
        """All keys, in no order."""
        return _asked(self._bucket.keys)


def open_store(name: str) -> Store:
    """The store that the configuration grants by this name."""
    return Store(name, _asked(need("store").open, name))


def setting(name: str, default: str | None = None) -> str | None:
    """The text that the configuration gives this name."""
    value = _asked(need("settings").get, name)
    return default if value is None else value
