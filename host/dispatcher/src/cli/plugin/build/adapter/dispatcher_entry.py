"""Calls the project's handler and answers "done" only if it did its work: what it returns and leaves
behind is checked first. What cannot work within a component is refused when it is built."""

import ast
import inspect
import os
import sys
import warnings

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import types

import app

# What needs a network with names and TLS, which the Python within a component has not.
CLIENTS = ("urllib.request", "http.client", "ssl", "smtplib", "ftplib")

# A `try` that expects an import to fail.
EXPECTS = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")


class Refused(Exception):
    """Why the project cannot become a component."""


class Broken(Exception):
    """Why an attempt is not done."""


ROOT = os.path.dirname(app.__file__)


def sources():
    """The project's own modules that are loaded: their names and files, the handler's first."""
    for name, module in [("app", app), *sorted(sys.modules.items())]:
        file = getattr(module, "__file__", None) or ""
        inside = os.path.relpath(file, ROOT) if file.startswith(ROOT + os.sep) else ""
        if inside.endswith(".py") and not inside.startswith((".venv", "build" + os.sep)):
            yield name, inside, file


def names_of(node, module):
    """The modules that an import statement wants, each with what it takes of it."""
    if isinstance(node, ast.Import):
        return [(alias.name, None) for alias in node.names]
    name = node.module or ""
    if node.level > 0:
        package = sys.modules[module].__package__ or ""
        parts = package.split(".") if package else []
        parts = parts[: len(parts) - node.level + 1]
        name = ".".join([*parts, *([node.module] if node.module else [])])
    return [(name, alias.name) for alias in node.names]


def is_loaded(name, member):
    module = sys.modules.get(name)
    if module is None:
        return False
    return member in (None, "*") or hasattr(module, member) or f"{name}.{member}" in sys.modules


def expects_failure(node):
    """Whether a `try` handles what an import raises."""
    for handler in node.handlers:
        kinds = [handler.type] if not isinstance(handler.type, ast.Tuple) else handler.type.elts
        if any(kind is None or getattr(kind, "id", None) in EXPECTS for kind in kinds):
            return True
    return False


def imports(node, in_function=False):
    """The import statements below a node that nothing guards, and whether each is in a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, in_function
        elif isinstance(child, ast.Try) and expects_failure(child):
            for rest in [*child.handlers, *child.orelse, *child.finalbody]:
                yield from imports(rest, in_function)
        else:
            is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from imports(child, in_function or is_function)


def check_imports():
    for module, inside, file in sources():
        with open(file, encoding="utf-8") as source:
            text = source.read()
        lines = text.splitlines()
        for node, in_function in imports(ast.parse(text)):
            at = f"{inside}:{node.lineno}: {lines[node.lineno - 1].strip()}"
            for name, member in names_of(node, module):
                full = f"{name}.{member}" if member else name
                if name in CLIENTS or full in CLIENTS:
                    raise Refused(f"{at}\n  the Python within a component cannot call out over the network")
                if in_function and not is_loaded(name, member):
                    raise Refused(f"{at}\n  a component has no files to import from while it runs")


def wanted(name):
    takes = "messages" if name == "BatchHandler" else "message"
    return f"wanted in app.py: class {name}(exports.{name}) with def handle(self, {takes})"


def found(name):
    """An instance of the project's class of this name, if it can be called as the contract does."""
    cls = getattr(app, name, None)
    if not inspect.isclass(cls):
        raise Refused(f"app.py has no class {name}; {wanted(name)}")
    handle = getattr(cls, "handle", None)
    if not callable(handle) or handle is getattr(getattr(exports, name), "handle"):
        raise Refused(f"{name} has no method handle; {wanted(name)}")
    if inspect.iscoroutinefunction(handle) or inspect.isasyncgenfunction(handle):
        raise Refused(f"{name}.handle is async, and nothing would run it; {wanted(name)}")
    if inspect.isgeneratorfunction(handle):
        raise Refused(f"{name}.handle is a generator, and nothing would run it; {wanted(name)}")
    handler = cls()
    try:
        inspect.signature(handler.handle).bind(None)
    except TypeError as why:
        raise Refused(f"{name}.handle cannot be called with one argument: {why}; {wanted(name)}") from None
    return handler


# Coroutines that nobody awaits, of which the interpreter tells when it drops them.
lost = []


def note_lost(unraisable):
    if isinstance(unraisable.exc_value, RuntimeWarning):
        lost.append(str(unraisable.exc_value))
    else:
        sys.__unraisablehook__(unraisable)


def is_time(value):
    return value is None or (type(value) is int and 0 <= value < 2**64)


def is_failure(value):
    """Whether it is a failure of the contract with what belongs into it."""
    if isinstance(value, types.Failure_Retry):
        return is_time(value.value)
    if isinstance(value, (types.Failure_Reject, types.Failure_Closed)):
        return isinstance(value.value, str)
    if isinstance(value, types.Failure_Busy):
        busy = value.value
        return isinstance(busy, types.Busy) and is_time(busy.after) and isinstance(busy.reason, str)
    return False


def check_nothing(answer):
    if answer is not None:
        raise Broken(
            f"handle returned {answer!r}; wanted nothing: return without a value when the message is "
            "done, and raise Err(Failure_...) when it is not"
        )


def check_failed(answer):
    if not isinstance(answer, list) or not all(
        isinstance(one, types.Failed) and isinstance(one.id, str) and is_failure(one.failure)
        for one in answer
    ):
        raise Broken(
            f"handle returned {answer!r}; wanted a list of the messages that failed, "
            "[Failed(id, failure)], empty when all are done"
        )


def adapted(name, check):
    handler = found(name)

    class Adapted:
        def handle(self, argument):
            lost.clear()
            try:
                answer = handler.handle(argument)
            except Err as failure:
                if not is_failure(failure.value):
                    raise Broken(f"raised Err({failure.value!r}); wanted Err of a Failure_...") from failure
                raise
            if inspect.iscoroutine(answer):
                answer.close()
                raise Broken("handle returned a coroutine, which nothing runs; wanted a plain function")
            check(answer)
            if lost:
                raise Broken(f"the work is not done: {lost[0]}")
            return answer

    Adapted.__name__ = Adapted.__qualname__ = name
    return Adapted


check_imports()
if hasattr(exports, "Handler"):
    Handler = adapted("Handler", check_nothing)
if hasattr(exports, "BatchHandler"):
    BatchHandler = adapted("BatchHandler", check_failed)

# A coroutine that nobody awaits did not do its work: that fails the attempt instead of a warning.
warnings.filterwarnings("error", message="coroutine .* was never awaited", category=RuntimeWarning)
sys.unraisablehook = note_lost
