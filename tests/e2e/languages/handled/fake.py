"""Runs handlers of `app.py` by the fake of the SDK, and prints what became of each message."""

import json
import sys
import types

# The component's own module, of which a test knows nothing.
sys.modules["componentize_py_types"] = types.SimpleNamespace(Err=type("Err", (Exception,), {}))

import app
from dispatcher_guest.testing import fake_host, run

outcomes = {}
for name in sys.argv[1:]:
    fake_host()
    try:
        (outcomes[name],) = run(app.handle, name)
    except BaseException:
        outcomes[name] = "failed"
print(json.dumps(outcomes))
