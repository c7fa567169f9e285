"""The dispatcher's log and metrics."""

from __future__ import annotations

import logging

from .host import HostError, need

LEVELS = ("trace", "debug", "info", "warn", "error")


def log(level: str, text: object, **fields: object) -> None:
    """Logs a line with fields. The level is one of trace, debug, info, warn and error."""
    if level not in LEVELS:
        raise ValueError(f"log: the level {level!r}; wanted one of {', '.join(LEVELS)}")
    need("log").write(level, str(text), [(name, str(value)) for name, value in fields.items()])


def _measured(kind: str, name: str, labels: dict[str, object], value: float) -> None:
    pairs = [(label, str(text)) for label, text in labels.items()]
    try:
        getattr(need("metrics"), kind)(name, pairs, float(value))
    except HostError as error:
        raise ValueError(f"the metric {name}: {error}") from None


def count(name: str, by: float = 1, **labels: object) -> None:
    """Adds to a counter of the plugin. The metrics page shows it as `plugin_NAME_total`."""
    _measured("add", name, labels, by)


def gauge(name: str, value: float, **labels: object) -> None:
    """Sets a gauge of the plugin. The metrics page shows it as `plugin_NAME`."""
    _measured("set", name, labels, value)


# The attributes that every record has. The others come from `extra`.
_USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class LogHandler(logging.Handler):
    """Writes the records of `logging` to the dispatcher's log, with `extra` as fields."""

    def emit(self, record: logging.LogRecord) -> None:
        level = next(
            (
                name
                for name, least in (("error", 40), ("warn", 30), ("info", 20), ("debug", 10))
                if record.levelno >= least
            ),
            "trace",
        )
        try:
            extra = {name: value for name, value in vars(record).items() if name not in _USUAL}
            log(level, self.format(record), **{**({} if record.name == "root" else {"logger": record.name}), **extra})
        except Exception:
            self.handleError(record)
