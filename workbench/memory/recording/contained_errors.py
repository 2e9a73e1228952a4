"""Errors of the recorder, or of code that it calls, become a sentence and never a user's error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ContainedErrors:
    """Errors in a recording, while the recorded code continued."""

    def __init__(self) -> None:
        super().__init__()
        self.failure = ""
        """Why the recording ended before its block did."""
        self.unnamed: dict[str, str] = {}
        """Class name -> why not everything that a model or an optimizer of that class holds was
        named."""

    def guarded(self, record_event: Callable[..., None], *args: Any) -> None:
        """Call ``record_event``; an error in it ends the recording, never the user's code."""
        if self.failure:
            return
        try:
            record_event(*args)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not the user's error
            self._fail(error)

    def name_held(self, adopt: Callable[..., None], holder: object, *args: Any) -> None:
        """Call ``adopt`` to name what a model or an optimizer holds.

        That runs code of the model or the optimizer, which may raise: then the recording continues,
        and reports it.
        """
        try:
            adopt(self, holder, *args)
        except Exception as error:  # noqa: BLE001 - as in `guarded`
            self._fail(error, type(holder).__name__)

    def _fail(self, error: Exception, unnamed: str = "") -> None:
        """Store why the recording ended; or why what ``unnamed`` holds has no names."""
        if unnamed:
            self.unnamed.setdefault(unnamed, in_words(error))
        else:
            self.failure = self.failure or in_words(error)


def in_words(error: BaseException) -> str:
    """Return ``ValueError: what it says``, also for an error whose message cannot be formatted."""
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"
    except Exception:  # noqa: BLE001 - it is a user's own class
        return kind
