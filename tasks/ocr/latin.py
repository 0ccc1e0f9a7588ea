"""Which characters a text in the Latin script needs: German, and what Western and Central Europe write.

Why it exists: the recogniser's 18,708 characters are mostly Chinese; a reader of European documents pays for them in
time and with the odd ideograph in place of a dash. Pure.
"""

from typing import Final

_SIGNS: Final = frozenset(
    "–—―‘’‚‛“”„†‡•…‰′″‹›€₤₣№™℃←↑→↓−∆∑√∞≈≠≤≥■□▪○●◆☐☑☒✓✔"  # noqa: RUF001 - these very characters are meant
)
_ROMANIAN: Final = frozenset("ȘșȚț")
_ASCII: Final = ("!", "~")
_LATIN: Final = ("\u00a1", "\u017f")  # Latin-1 Supplement and Latin Extended-A


def is_latin(character: str) -> bool:
    """Say whether a character belongs to the Latin script, its punctuation or the signs used with it."""
    return (
        _ASCII[0] <= character <= _ASCII[1]
        or _LATIN[0] <= character <= _LATIN[1]
        or character in _SIGNS
        or character in _ROMANIAN
    )
