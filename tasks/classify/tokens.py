"""From ticket texts to token ids, at most `max_length` of them, with what was cut said aloud.

A long ticket keeps its head and its tail by default, because the request often stands at the end. Truncation
comes after tokenising in the tokenizers library, so a text of 1 MB would cost most of a second; here a piece
of each end is cut off first, which yields the same ids. The padding and truncation that tokenizer.json itself
carries are ignored. This module knows neither tickets nor models.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from schemas.messages import Truncation
from worker.errors import ModelError

# An English token is about 4 characters; a piece this long nearly always holds enough of them.
_CHARACTERS_PER_TOKEN: Final = 6
_GROWTH: Final = 4

_PLAIN_TEXT: Final = "a"


class Encoded(NamedTuple):
    """What the model sees of one text.

    Attributes:
        ids: int64[tokens], special tokens included.
        truncated: whether tokens were left out.
    """

    ids: NDArray[np.int64]
    truncated: bool

    @property
    def tokens(self) -> int:
        """How many tokens the model sees."""
        return len(self.ids)


class TicketEncoder:
    """Encodes texts for one model. Thread-safe.

    Args:
        tokenizer_path: a `tokenizer.json`.
        max_length: most tokens of a text, special tokens included.

    Raises:
        ModelError: the file is broken, or the length leaves no room for text.
    """

    def __init__(self, tokenizer_path: Path, max_length: int) -> None:
        self._tokenizer = _load(tokenizer_path)
        self._prefix, self._suffix = _special_ids(self._tokenizer, tokenizer_path)
        self._room = max_length - len(self._prefix) - len(self._suffix)
        if self._room < 1:
            specials = len(self._prefix) + len(self._suffix)
            text = f"max_length {max_length} leaves no room beside {specials} special tokens: raise it"
            raise ModelError(text)
        self._unknown = _unknown_ids(self._tokenizer)
        self._piece_characters = _CHARACTERS_PER_TOKEN * max_length

    def encode(self, texts: Sequence[str], truncation: Truncation) -> list[Encoded | None]:
        """Encode valid Unicode texts; None stands for a text in which the tokenizer knows nothing.

        Blocks without the GIL, about 20 µs for a short ticket. A text's ids do not depend on the other texts.

        Args:
            texts: without lone surrogates.
            truncation: keep head and tail in equal parts, or the head only.
        """
        longest = self._piece_characters * _ends(truncation)
        whole = iter(self._token_ids([text for text in texts if len(text) <= longest]))
        return [
            self._fit(next(whole), truncation) if len(text) <= longest else self._encode_long(text, truncation)
            for text in texts
        ]

    def _token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without special tokens."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def _encode_long(self, text: str, truncation: Truncation) -> Encoded | None:
        """Encode only the ends; where too few tokens come out of them (long words, blanks), longer ends."""
        characters = self._piece_characters
        while characters * _ends(truncation) < len(text):
            head = _first_words(text[:characters])
            if truncation == "head":
                (ids,) = self._token_ids([head])
                enough = len(ids) > self._room
            else:
                head_ids, tail_ids = self._token_ids([head, _last_words(text[-characters:])])
                enough = min(len(head_ids), len(tail_ids)) > self._room // 2
                ids = head_ids + tail_ids
            if enough:
                return self._fit(ids, truncation)
            characters *= _GROWTH
        (ids,) = self._token_ids([text])
        return self._fit(ids, truncation)

    def _fit(self, ids: list[int], truncation: Truncation) -> Encoded | None:
        """Cut `ids` down to the room there is, and add the special tokens."""
        if not ids or (ids[0] in self._unknown and self._unknown.issuperset(ids)):
            return None
        truncated = len(ids) > self._room
        if truncated:
            tail = self._room // 2 if truncation == "head_tail" else 0
            ids = ids[: self._room - tail] + ids[len(ids) - tail :]
        return Encoded(np.array(self._prefix + ids + self._suffix, np.int64), truncated)


def _load(path: Path) -> Tokenizer:
    # Its own thread pool costs 25 to 100 % more CPU on short texts; only the environment switches it off.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        text = f"{path} cannot be loaded by the tokenizers library: {error}; export the model's tokenizer again"
        raise ModelError(text) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _special_ids(tokenizer: Tokenizer, path: Path) -> tuple[list[int], list[int]]:
    """Return the ids that go before and after every text."""
    plain = tokenizer.encode(_PLAIN_TEXT, add_special_tokens=False).ids
    full = tokenizer.encode(_PLAIN_TEXT).ids
    for start in range(len(full) - len(plain) + 1):
        if plain and full[start : start + len(plain)] == plain:
            return full[:start], full[start + len(plain) :]
    text = f"{path} makes no tokens of plain text: export the model's tokenizer again"
    raise ModelError(text)


def _unknown_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids that say nothing about a text: special tokens, and the one for unknown words."""
    special = {index for index, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    word = getattr(tokenizer.model, "unk_token", None)
    unknown = tokenizer.token_to_id(word) if word else None
    return frozenset(special if unknown is None else special | {unknown})


def _ends(truncation: Truncation) -> int:
    return 1 if truncation == "head" else 2


def _first_words(piece: str) -> str:
    """Drop the word that the cut went through: a part of it may have other tokens than the whole."""
    words = piece.rsplit(None, 1)
    return words[0] if len(words) > 1 else ""


def _last_words(piece: str) -> str:
    """Do the same at the other end; the space stays, because some tokenizers mark a word by it."""
    words = piece.split(None, 1)
    return f" {words[1]}" if len(words) > 1 else ""
