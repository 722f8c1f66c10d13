"""Pickle messages, and unpickle them only if they consist of data: another process of this user must not run code by them."""

from __future__ import annotations

import dataclasses
import io
import pickle
import sys
from enum import Enum
from importlib import import_module
from typing import Any, Final

__all__ = ["dumps", "loads"]

_PACKAGES: Final = ("kpipe", "resources")
# Values of other types inside of kpipe's classes. All of them only store their arguments.
_OTHERS: Final = {
    "builtins": {"bytearray", "complex", "frozenset", "object", "set"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "pathlib": {"Path", "PosixPath", "PurePath", "PurePosixPath"},
    "uuid": {"UUID"},
    "resources.kafka.token_source": {"_arrived"},
}


def dumps(message: object) -> bytes:
    """Pickle a message."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def loads(data: bytes | bytearray) -> Any:
    """Unpickle a message.

    Raises:
        pickle.UnpicklingError: it contains something else than data.
    """
    return _Unpickler(io.BytesIO(data)).load()


class _Unpickler(pickle.Unpickler):
    """Unpickles dataclasses, models, enumerations and texts of kpipe's core and resources, and values of some other types."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of data.

        Raises:
            pickle.UnpicklingError: it is something else.
        """
        if name in _OTHERS.get(module, ()):
            return getattr(import_module(module), name)
        if module.partition(".")[0] in _PACKAGES and name.isidentifier():
            found = getattr(import_module(module), name, None)
            if isinstance(found, type) and found.__module__ == module and _is_data(found):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is not data")


def _is_data(kind: type) -> bool:
    pydantic = sys.modules.get("pydantic")
    model = () if pydantic is None else (pydantic.BaseModel,)
    return dataclasses.is_dataclass(kind) or issubclass(kind, (Enum, str, tuple, *model))
