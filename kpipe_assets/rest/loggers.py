"""/admin/loggers of Kafka Connect's REST API: the levels of this process's loggers."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from fastapi import APIRouter, Query, Response

from kpipe_assets.rest.problems import Problem, Safe

__all__ = ["router"]

#: Levels of Log4j to those of Python.
_LEVELS = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
}


def _name(level: int) -> str:
    """Return Log4j's name of a level."""
    return next((name for name, value in _LEVELS.items() if level >= value), "TRACE")


def _loggers() -> dict[str, logging.Logger]:
    found = {name: item for name, item in list(logging.root.manager.loggerDict.items()) if isinstance(item, logging.Logger)}
    return {"root": logging.root, **found}


def router() -> APIRouter:
    """Return the resources of loggers."""
    routes = APIRouter(prefix="/admin/loggers", tags=["Kafka Connect: loggers"])
    modified: dict[str, int] = {}
    lock = threading.Lock()

    def shown(name: str, logger: logging.Logger) -> dict[str, Any]:
        return {"level": _name(logger.getEffectiveLevel()), "last_modified": modified.get(name)}

    @routes.get("", summary="List loggers with a level")
    def levels() -> Any:
        found = {name: item for name, item in sorted(_loggers().items()) if item.level != logging.NOTSET}
        return Safe({name: shown(name, item) for name, item in found.items()})

    @routes.get("/{logger}", summary="Get the level of a logger")
    def level(logger: str) -> Any:
        found = _loggers().get(logger)
        if found is None:
            raise Problem(404, f"Logger {logger} not found.")
        return Safe(shown(logger, found))

    @routes.put("/{logger}", summary="Set the level of a logger and those below it", responses={204: {}})
    def set_level(logger: str, body: dict[str, Any], scope: str = Query("worker")) -> Any:
        given = body.get("level")
        if given is None:
            raise Problem(400, "Desired 'level' parameter was not specified in request.")
        value = _LEVELS.get(given.upper()) if isinstance(given, str) else None
        if value is None:
            raise Problem(404, f"invalid log level '{given}'.")
        with lock:
            changed = sorted(name for name in _loggers() if name == logger or name.startswith(f"{logger}."))
            if not changed:
                raise Problem(404, f"Logger {logger} not found.")
            for name in changed:
                _loggers()[name].setLevel(value)
                modified[name] = int(time.time() * 1000)
        return Response(status_code=204) if scope.lower() == "cluster" else Safe(changed)

    return routes
