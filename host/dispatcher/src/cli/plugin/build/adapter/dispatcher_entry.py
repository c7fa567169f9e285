"""Calls the project's handler and answers "done" only if it did its work: what it returns and leaves
behind is checked first. What cannot work within a component is refused when it is built."""

import inspect
import os
import re
import sys
import traceback
import warnings

import componentize_py_types
import dispatcher_files
import wit_world
from componentize_py_types import Err
from dispatcher_imports import Project, Refused, handler_module
from wit_world import exports
from wit_world.imports import types

from dispatcher_guest import component
from dispatcher_guest.failures import Failed, Failure, Retry
from dispatcher_guest.telemetry import log

app = handler_module()


class Broken(Exception):
    """Why an attempt is not done."""


# The function of each export, and its parameter.
SHAPES = {"Handler": ("handle", "message"), "BatchHandler": ("handle_batch", "messages")}


def found(name):
    """The function that the project handles messages with, if it can be called as the contract does."""
    function, takes = SHAPES[name]
    wanted = f"wanted in app.py: def {function}({takes})"
    handle = getattr(app, function, None)
    if not callable(handle):
        raise Refused(f"app.py has no function {function}; {wanted}")
    if inspect.iscoroutinefunction(handle) or inspect.isasyncgenfunction(handle):
        raise Refused(f"{function} is async, and nothing would run it; {wanted}")
    if inspect.isgeneratorfunction(handle):
        raise Refused(f"{function} is a generator, and nothing would run it; {wanted}")
    try:
        inspect.signature(handle).bind(None)
    except TypeError as why:
        raise Refused(f"{function} cannot be called with one argument: {why}; {wanted}") from None
    return handle


# Coroutines that nobody awaits, of which the interpreter tells when it drops them.
lost = []


def note_lost(unraisable):
    if isinstance(unraisable.exc_value, RuntimeWarning):
        lost.append(str(unraisable.exc_value))
    else:
        sys.__unraisablehook__(unraisable)


def is_failure(value):
    """Whether it is a failure of the contract with valid details."""
    return isinstance(value, Failure) and component.failure_of(value) is not None


def check_nothing(answer):
    if answer is not None:
        raise Broken(
            f"handle returned {answer!r}; wanted nothing: return without a value when the message is "
            "done, and raise Reject(...) or Retry(...) when it is not"
        )


def check_failed(answer):
    if not isinstance(answer, list) or not all(
        isinstance(one, Failed) and isinstance(one.id, str) and is_failure(one.failure) for one in answer
    ):
        raise Broken(
            f"handle returned {answer!r}; wanted a list of the messages that failed, "
            "[Failed(id, failure)], empty when all are done"
        )


def taken(argument):
    """What the handler is given for what the host gave."""
    if isinstance(argument, list):
        return [component.message_of(one) for one in argument]
    return component.message_of(argument)


def told(answer):
    """What the host is given for what the handler returned."""
    if answer is None:
        return None
    return [types.Failed(one.id, component.failure_of(one.failure)) for one in answer]


def called(handle, argument):
    """Calls the handler; a failure of the SDK becomes the contract's."""
    try:
        return handle(taken(argument))
    except Err as failure:
        raise Broken(f"raised {failure!r}; wanted Reject, Retry, Busy or Closed") from failure
    except Exception as error:
        if isinstance(error, ModuleNotFoundError):
            error.add_note(
                "A component has no files to import from while it runs: import the module at the top of "
                "app.py, where it is loaded when the component is built."
            )
        raise Err(component.failure_of(error if is_failure(error) else unhandled(error))) from None


# The most characters of a reason.
MOST_REASON = 1000


# The most frames of a stack that are logged, and the most causes of an exception.
MOST_FRAMES = 12
MOST_CAUSES = 5


def described(error):
    return "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])


def stack_of(error):
    """The frames of the handler in one line, the innermost first: `price (prices.py:8)`."""
    # Without this module's own frame, and without the number of the folder within the component.
    frames = traceback.extract_tb(error.__traceback__.tb_next)
    shown = [f"{one.name} ({re.sub(r'^/[0-9]+/', '', one.filename)}:{one.lineno})" for one in frames]
    return " ← ".join(reversed(shown[-MOST_FRAMES:]))


def unhandled(error):
    """Logs an exception as one record, and makes it a retry whose reason a dead letter has then."""
    text = f"uncaught {described(error)}"
    reason = " ".join(text.split())[:MOST_REASON]
    cause = error.__cause__ or error.__context__
    for _ in range(MOST_CAUSES):
        if cause is None:
            break
        text += f"; caused by {described(cause)}"
        cause = cause.__cause__ or cause.__context__
    try:
        log("error", text, stack=stack_of(error))
    except RuntimeError:
        # The world does not import the log.
        traceback.print_exception(error.with_traceback(error.__traceback__.tb_next))
    return Retry(reason=reason)


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
TYPES = os.path.dirname(componentize_py_types.__file__)
project = Project(os.path.dirname(app.__file__), (HERE, WORLD, TYPES))
project.take_in()
try:
    dispatcher_files.keep(project.root, project.others)
except dispatcher_files.TooLarge as why:
    raise Refused(str(why)) from None
if hasattr(exports, "Handler"):
    Handler = adapted("Handler", check_nothing)
if hasattr(exports, "BatchHandler"):
    BatchHandler = adapted("BatchHandler", check_failed)
if not hasattr(exports, "Handler") and not hasattr(exports, "BatchHandler"):
    raise Refused(
        "wit/world.wit exports neither dispatcher:plugin/handler@0.1.0 nor "
        "dispatcher:plugin/batch-handler@0.1.0"
    )

# A coroutine that nobody awaits did not do its work: that fails the attempt instead of a warning.
warnings.filterwarnings("error", message="coroutine .* was never awaited", category=RuntimeWarning)
sys.unraisablehook = note_lost
dispatcher_files.serve()
