"""The one kind of error that a user's input can cause."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can put right: one sentence that names the file, the field and the remedy.

    The command line prints the sentence and exits with 2; it never shows a traceback for one.
    """


def nearest(word: str, known: Iterable[str]) -> str:
    """' Did you mean …?' for the known name nearest to `word`, else the list of known names."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f" Did you mean '{close[0]}'?"
    return f" Known: {', '.join(names)}."
