"""What the dispatcher provides, by the names of the contract's interfaces. Within a component it is set
before the handler is loaded, in a test by `fake_host`. Knows no handler."""

from __future__ import annotations

from typing import Any

_provided: dict[str, Any] = {}

# The import of `wit/world.wit` that provides an interface.
_IMPORTS = {
    "store": "wasi:keyvalue/store@0.2.0-draft2",
    "settings": "wasi:config/store@0.2.0-rc.1",
}


class HostError(Exception):
    """An error that the dispatcher returned: the contract's name of it, and its details."""

    def __init__(self, code: str, value: Any):
        super().__init__(f"{code}: {value}")
        self.code = code
        self.value = value


def provide(interfaces: dict[str, Any]) -> None:
    """Makes these the interfaces of the dispatcher."""
    _provided.clear()
    _provided.update(interfaces)


def need(name: str) -> Any:
    """An interface of the dispatcher, or an error that says how to get it."""
    if name in _provided:
        return _provided[name]
    wanted = _IMPORTS.get(name, f"dispatcher:plugin/{name}@0.2.0-rc.1")
    raise RuntimeError(
        f"the handler uses {name}, which its world does not import: name it in wit/world.wit, "
        f"import {wanted}; in a test, begin with fake_host()"
    )
