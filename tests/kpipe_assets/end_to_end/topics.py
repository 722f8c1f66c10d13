"""Definitions over several topics, and the rows that they should give."""

from __future__ import annotations

import json
from typing import Any


def records(start: int, end: int, **more: Any) -> list[str]:
    return [json.dumps({"id": n, "text": f"tweet {n} 🎉", **more}) for n in range(start, end)]


def both(*topics: str, **more: Any) -> dict[str, Any]:
    return {"topic": None, "topics": list(topics), **more}


def found_by(pattern: str, **more: Any) -> dict[str, Any]:
    return {"topic": None, "topic_pattern": pattern, **more}
