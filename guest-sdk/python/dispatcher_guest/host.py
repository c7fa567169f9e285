"""The interfaces that the dispatcher provides, by their names in the contract. A component sets
them before it loads the handler; in a test, `fake_host` sets them."""

from __future__ import annotations

from typing import Any

_provided: dict[str, Any] = {}

# The imports of the interfaces from other packages, for `wit/world.wit`.
_IMPORTS = {
    "store": "wasi:keyvalue/store@0.2.0-draft2",
    "settings": "wasi:config/store@0.2.0-rc.1",
}


class HostError(Exception):
    """An error that the dispatcher returned: its name in the contract, and its details."""

    def __init__(self, code: str, value: Any):
        super().__init__(f"{code}: {value}")
        self.code = code
        self.value = value


def provide(interfaces: dict[str, Any]) -> None:
    """Replaces the interfaces of the dispatcher."""
    _provided.clear()
    _provided.update(interfaces)


def need(name: str) -> Any:
    """Returns an interface of the dispatcher. If it is missing, raises an error that says how to
    import it."""
    if name in _provided:
        return _provided[name]
    wanted = _IMPORTS.get(name, f"dispatcher:plugin/{name}@0.1.0")
    raise RuntimeError(
        f"the handler uses {name}, which its world does not import: add `import {wanted};` "
        "to wit/world.wit; in a test, begin with fake_host()"
    )
