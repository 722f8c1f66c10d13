"""The prompt of `kpipe sql`: statements of several lines, a history without secrets, completion from the grammar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from kpipe.sql.masking import masked
from kpipe.sql.parser import is_complete, next_words

__all__ = ["Dialogue", "QuietHistory", "StatementCompleter"]

_TABLES = (
    "kpipe_batches", "kpipe_batches_summary", "kpipe_commits", "kpipe_cursors", "kpipe_errors", "kpipe_holdings", "kpipe_ledger",
    "kpipe_partitions", "kpipe_pipelines",
)  # fmt: skip
_WORD = re.compile(r"[^\s'\"`(),;=]*\Z")
_LEAVE = ("exit", "quit", "exit;", "quit;", "\\q")


class QuietHistory(FileHistory):
    """A history in a file that only its owner can read, with possible secrets masked."""

    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600, exist_ok=True)
        super().__init__(str(path))

    def store_string(self, string: str) -> None:
        """Store a statement with its secrets masked; see `FileHistory`."""
        super().store_string(masked(string))


class StatementCompleter(Completer):
    """Completion with the grammar's next words, names of pipelines, and names of the ledger's views in a query.

    Args:
        names: returns the names of the pipelines.
    """

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield completions of the word at the cursor; see `Completer`."""
        text = document.text_before_cursor
        match = _WORD.search(text)
        word = match[0] if match else ""
        before = text[: len(text) - len(word)]
        words, name = next_words(before)
        if (
            not words
            and not name
            and re.match(r"\s*(?:SELECT|FROM|WITH|DESCRIBE|SUMMARIZE|EXPLAIN)\b", _last(before), re.IGNORECASE)
        ):
            words = list(_TABLES)
        names = list(self._names()) if name and re.search(r"\bPIPELINE\b", _last(before), re.IGNORECASE) else []
        for item in [*words, *names]:
            if item.upper().startswith(word.upper()):
                yield Completion(item, start_position=-len(word))


def _last(text: str) -> str:
    return text.rpartition(";")[2]


class Dialogue:
    """A reader of statements from a terminal.

    Args:
        history: file of the history.
        names: returns the names of the pipelines.
        more: further arguments of prompt_toolkit's session; tests pass a terminal.
    """

    def __init__(self, history: Path, names: Callable[[], Iterable[str]], **more: Any) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=QuietHistory(history),
            completer=StatementCompleter(names),
            complete_while_typing=False,
            multiline=True,
            key_bindings=_bindings(),
            prompt_continuation="    -> ",
            **more,
        )

    def __iter__(self) -> Iterator[str]:
        """Yield statements until Ctrl-D or `exit`. Ctrl-C discards the current one."""
        while True:
            try:
                text = self._session.prompt("kpipe> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text.strip().lower() in _LEAVE:
                return
            if text.strip():
                yield text


def _bindings() -> KeyBindings:
    """Bind Enter: it executes a complete statement, and starts a new line in an incomplete one."""
    bindings = KeyBindings()

    @Condition
    def done() -> bool:
        from prompt_toolkit.application import get_app

        text = get_app().current_buffer.text
        return is_complete(text) or text.strip().lower() in (*_LEAVE, "help")

    @bindings.add("enter", filter=done)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return bindings
