"""A fault of ours, or of code that we call, becomes a sentence and never an error of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Faults:
    """What went wrong in a recording, while the code that is recorded went on."""

    def __init__(self) -> None:
        super().__init__()
        self.failure = ""
        """Why the recording ended before its block did."""
        self.unnamed: dict[str, str] = {}
        """By its class, why what a model or an optimizer holds could not all be named."""

    def guarded(self, take_note: Callable[..., None], *args: Any) -> None:
        """Take note of something; a fault of ours ends the recording, never the user's code."""
        if self.failure:
            return
        try:
            take_note(*args)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not the user's error
            self._fail(error)

    def name_held(self, adopt: Callable[..., None], holder: object, *args: Any) -> None:
        """Have ``adopt`` name what a model or an optimizer holds.

        Their own code runs for that, and may fault: then the recording goes on, and says so.
        """
        try:
            adopt(self, holder, *args)
        except Exception as error:  # noqa: BLE001 - as in `guarded`
            self._fail(error, type(holder).__name__)

    def _fail(self, error: Exception, unnamed: str = "") -> None:
        """Keep why the recording ended; or why what ``unnamed`` holds has no names."""
        if unnamed:
            self.unnamed.setdefault(unnamed, in_words(error))
        else:
            self.failure = self.failure or in_words(error)


def in_words(error: BaseException) -> str:
    """``ValueError: what it says``, also of one that cannot say it."""
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"
    except Exception:  # noqa: BLE001 - it is a person's own class
        return kind
