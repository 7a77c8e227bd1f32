"""Log lines about connections that are attempted again and again: once per change."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

REPEAT_MS: Final = 600_000
"""A line that stays true is logged again after that long."""
SUBJECTS_MAX: Final = 256
TEXTS_MAX: Final = 8
"""Of one subject: a peer at two addresses, called by turns, has two."""


class SaidOnce:
    """What was logged about each subject; of too many, the one logged longest ago is forgotten."""

    def __init__(self) -> None:
        self._said: OrderedDict[str, dict[str, int]] = OrderedDict()

    def news(self, subject: str, text: str, now_ms: int) -> bool:
        """Return whether to log the text: it was not since `forget`, or long ago."""
        texts = self._said.setdefault(subject, {})
        self._said.move_to_end(subject)
        if len(self._said) > SUBJECTS_MAX:
            self._said.popitem(last=False)
        if text in texts and now_ms - texts[text] < REPEAT_MS:
            return False
        texts.pop(text, None)
        texts[text] = now_ms
        if len(texts) > TEXTS_MAX:
            del texts[next(iter(texts))]
        return True

    def forget(self, subject: str) -> None:
        """Log the next line about it in any case: its condition has changed."""
        self._said.pop(subject, None)
