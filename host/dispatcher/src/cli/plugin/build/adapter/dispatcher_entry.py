"""Calls the project's handler and answers "done" only if it did its work: what it returns and leaves
behind is checked first. What cannot work within a component is refused when it is built."""

import inspect
import os
import sys
import traceback
import warnings

import wit_world
from componentize_py_types import Err
from dispatcher_imports import Project, Refused, handler_module
from wit_world import exports
from wit_world.imports import types

# Version 0.2 of the contract, for which there is an SDK. A handler of 0.1 uses what is generated.
HAS_SDK = hasattr(types, "Retry")
if HAS_SDK:
    from dispatcher_guest import component
    from dispatcher_guest.failures import Failed, Failure, Retry

app = handler_module()


class Broken(Exception):
    """Why an attempt is not done."""


# What a handler of each export is: the export's class, what it is given, and the function of 0.2.
SHAPES = {"Handler": ("message", "handle"), "BatchHandler": ("messages", "handle_batch")}


def wanted(name):
    takes, function = SHAPES[name]
    if HAS_SDK:
        return f"wanted in app.py: def {function}({takes})"
    return f"wanted in app.py: class {name}(exports.{name}) with def handle(self, {takes})"


def found(name):
    """What the project handles messages with, if it can be called as the contract does."""
    _, function = SHAPES[name]
    if HAS_SDK:
        handle, called = getattr(app, function, None), function
        if not callable(handle):
            raise Refused(f"app.py has no function {function}; {wanted(name)}")
    else:
        handle, called = method_of(name), f"{name}.handle"
    if inspect.iscoroutinefunction(handle) or inspect.isasyncgenfunction(handle):
        raise Refused(f"{called} is async, and nothing would run it; {wanted(name)}")
    if inspect.isgeneratorfunction(handle):
        raise Refused(f"{called} is a generator, and nothing would run it; {wanted(name)}")
    if not HAS_SDK:
        handle = getattr(app, name)().handle
    try:
        inspect.signature(handle).bind(None)
    except TypeError as why:
        raise Refused(f"{called} cannot be called with one argument: {why}; {wanted(name)}") from None
    return handle


def method_of(name):
    cls = getattr(app, name, None)
    if not inspect.isclass(cls):
        raise Refused(f"app.py has no class {name}; {wanted(name)}")
    handle = getattr(cls, "handle", None)
    if not callable(handle) or handle is getattr(getattr(exports, name), "handle"):
        raise Refused(f"{name} has no method handle; {wanted(name)}")
    return handle


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
    if HAS_SDK:
        return isinstance(value, Failure) and component.failure_of(value) is not None
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
        failure = "raise Reject(...) or Retry(...)" if HAS_SDK else "raise Err(Failure_...)"
        raise Broken(
            f"handle returned {answer!r}; wanted nothing: return without a value when the message is "
            f"done, and {failure} when it is not"
        )


def check_failed(answer):
    kind = Failed if HAS_SDK else types.Failed
    if not isinstance(answer, list) or not all(
        isinstance(one, kind) and isinstance(one.id, str) and is_failure(one.failure) for one in answer
    ):
        raise Broken(
            f"handle returned {answer!r}; wanted a list of the messages that failed, "
            "[Failed(id, failure)], empty when all are done"
        )


def taken(argument):
    """What the handler is given for what the host gave."""
    if not HAS_SDK:
        return argument
    if isinstance(argument, list):
        return [component.message_of(one) for one in argument]
    return component.message_of(argument)


def told(answer):
    """What the host is given for what the handler returned."""
    if not HAS_SDK or answer is None:
        return answer
    return [types.Failed(one.id, component.failure_of(one.failure)) for one in answer]


def called(handle, argument):
    """Calls the handler; a failure of its version of the contract becomes the contract's."""
    try:
        return handle(taken(argument))
    except Err as failure:
        if HAS_SDK:
            raise Broken(f"raised {failure!r}; wanted Reject, Retry, Busy or Closed") from failure
        if not is_failure(failure.value):
            raise Broken(f"raised Err({failure.value!r}); wanted Err of a Failure_...") from failure
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError):
            error.add_note(
                "A component has no files to import from while it runs: import the module at the top of "
                "app.py, where it is loaded when the component is built."
            )
        # Version 0.1 has no reasons.
        if not HAS_SDK:
            raise
        raise Err(component.failure_of(error if is_failure(error) else unhandled(error))) from None


# The most characters of a reason.
MOST_REASON = 1000


def unhandled(error):
    """Logs an exception, and makes it a retry whose reason a dead letter has then."""
    # Without this module's own frame.
    traceback.print_exception(error.with_traceback(error.__traceback__.tb_next))
    lines = f"uncaught {type(error).__name__}: {error}".splitlines()
    return Retry(reason=lines[0][:MOST_REASON])


def adapted(name, check):
    handle = found(name)

    class Adapted:
        def handle(self, argument):
            lost.clear()
            answer = called(handle, argument)
            if inspect.iscoroutine(answer):
                answer.close()
                raise Broken("handle returned a coroutine, which nothing runs; wanted a plain function")
            check(answer)
            if lost:
                raise Broken(f"the work is not done: {lost[0]}")
            return told(answer)

    Adapted.__name__ = Adapted.__qualname__ = name
    return Adapted


HERE = os.path.dirname(os.path.abspath(__file__))
WORLD = os.path.dirname(os.path.dirname(os.path.abspath(wit_world.__file__)))
Project(os.path.dirname(app.__file__), (HERE, WORLD)).take_in()
if hasattr(exports, "Handler"):
    Handler = adapted("Handler", check_nothing)
if hasattr(exports, "BatchHandler"):
    BatchHandler = adapted("BatchHandler", check_failed)

# A coroutine that nobody awaits did not do its work: that fails the attempt instead of a warning.
warnings.filterwarnings("error", message="coroutine .* was never awaited", category=RuntimeWarning)
sys.unraisablehook = note_lost
