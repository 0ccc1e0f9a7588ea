"""Counting what became of the rows: one tally for each part, added up to the manifest's totals.

Addition is associative and commutative, and its result does not depend on how the rows were cut into parts. The same
rows give the same JSON, byte for byte, because keys come out sorted.
It does not know where a tally is stored, nor how a row was labelled.
"""

from __future__ import annotations

from collections import Counter
from operator import add
from typing import TYPE_CHECKING, TypeVar

from schemas.bulk_manifest import SCORE_BINS, PageTally, Tally
from schemas.bulk_ocr import BulkOcr
from schemas.errors import ErrorCode, MessageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.bulk_plan import BulkRequest


def tally_rows(  # noqa: PLR0913 - a column or a count each
    labels: Sequence[str | None],
    scores: Sequence[float | None],
    errors: Sequence[ErrorCode | None],
    *,
    truncated: int,
    tokens: int,
    repeated: int,
) -> Tally:
    """Count rows, given as columns of equal length.

    Args:
        labels: the best label of each row; None with an error, or where none fits.
        scores: its score, 0 to 1, as rounded in the part; None without a label.
        errors: why a row has none.
        truncated: rows of which the model saw only a part.
        tokens: tokens of all rows after truncation, repeated ones included.
        repeated: rows that took the result of an equal text.

    Raises:
        ValueError: the columns differ in length, or do not fit together.
    """
    if not len(labels) == len(scores) == len(errors):
        raise ValueError("labels, scores and errors have different numbers of rows")
    if any((label is None) != (score is None) for label, score in zip(labels, scores, strict=True)):
        raise ValueError("a label without a score, or a score without a label")
    found = Counter(label for label in labels if label is not None)
    failed = Counter(code for code in errors if code is not None)
    return Tally(
        rows=len(labels),
        labelled=found.total(),
        unlabelled=len(labels) - found.total() - failed.total(),
        errors=_sorted(failed),
        labels=_sorted(found),
        scores=histogram(score for score in scores if score is not None),
        truncated=truncated,
        repeated=repeated,
        tokens=tokens,
    )


def histogram(scores: Iterable[float]) -> list[int]:
    """How many scores are in each of `SCORE_BINS` equal bins; a bin holds its lower end, the last one 1 as well.

    Raises:
        ValueError: a score is not between 0 and 1.
    """
    bins = [0] * SCORE_BINS
    for score, count in Counter(scores).items():
        if not 0 <= score <= 1:
            raise ValueError(f"a score of {score} is not between 0 and 1")
        bins[min(int(score * SCORE_BINS), SCORE_BINS - 1)] += count
    return bins


def tally_pages(
    documents: int, errors: Sequence[ErrorCode | None], confidences: Sequence[float | None], *, lines: int
) -> PageTally:
    """Count rows of pages, given as columns of equal length.

    Args:
        documents: that the rows are of.
        errors: why a page, or a whole document, was not read.
        confidences: the mean of each page's lines, 0 to 1, as rounded in the part; None with an error, or of no line.
        lines: of all pages.

    Raises:
        ValueError: the columns differ in length, or do not fit together.
    """
    sure = [confidence for confidence in confidences if confidence is not None]
    failed = Counter(code for code in errors if code is not None)
    pages = len(errors) - failed.total()
    if any(code is not None and confidence is not None for code, confidence in zip(errors, confidences, strict=True)):
        raise ValueError("a page with an error has a confidence")
    return PageTally(
        rows=len(errors),
        documents=documents,
        pages=pages,
        blank=pages - len(sure),
        errors=_sorted(failed),
        confidences=histogram(sure),
        lines=lines,
    )


def merge(tallies: Iterable[Tally]) -> Tally:
    """Add tallies of different rows; of none it is the empty tally."""
    errors: Counter[ErrorCode] = Counter()
    labels: Counter[str] = Counter()
    scores = [0] * SCORE_BINS
    plain: Counter[str] = Counter()
    for tally in tallies:
        errors.update(tally.errors)
        labels.update(tally.labels)
        scores = list(map(add, scores, tally.scores))
        plain.update({name: getattr(tally, name) for name in _PLAIN})
    return Tally(
        **{name: plain[name] for name in _PLAIN}, errors=_sorted(errors), labels=_sorted(labels), scores=scores
    )


_PLAIN = ("rows", "labelled", "unlabelled", "truncated", "repeated", "tokens")


def merge_pages(tallies: Iterable[PageTally]) -> PageTally:
    """Add tallies of different pages, likewise."""
    errors: Counter[ErrorCode] = Counter()
    confidences = [0] * SCORE_BINS
    plain: Counter[str] = Counter()
    for tally in tallies:
        errors.update(tally.errors)
        confidences = list(map(add, confidences, tally.confidences))
        plain.update({name: getattr(tally, name) for name in _PLAIN_OF_PAGES})
    return PageTally(**{name: plain[name] for name in _PLAIN_OF_PAGES}, errors=_sorted(errors), confidences=confidences)


_PLAIN_OF_PAGES = ("rows", "documents", "pages", "blank", "lines")


def total(tallies: Iterable[Tally | PageTally], request: BulkRequest) -> Tally | PageTally:
    """Add the tallies of a run's parts.

    Raises:
        ValueError: a part counts otherwise than this kind of run does.
    """
    counted = list(tallies)
    if isinstance(request, BulkOcr):
        return merge_pages(_all_of(PageTally, counted))
    return merge(_all_of(Tally, counted))


def _all_of(kind: type[_Tally], tallies: Sequence[Tally | PageTally]) -> list[_Tally]:
    found = [tally for tally in tallies if isinstance(tally, kind)]
    if len(found) != len(tallies):
        raise ValueError("a part counts what another kind of run does")
    return found


def differences(tally: Tally | PageTally, other: Tally | PageTally) -> list[str]:
    """Return the counts in which two tallies differ, by name."""
    names = dict.fromkeys([*type(tally).model_fields, *type(other).model_fields])
    return [name for name in names if getattr(tally, name, None) != getattr(other, name, None)]


def label_shares(tally: Tally | PageTally) -> dict[str, float]:
    """The share of each label among the labelled rows, most frequent first, rounded to 6 decimals; none of pages."""
    if isinstance(tally, PageTally):
        return {}
    ranked = sorted(tally.labels.items(), key=lambda found: (-found[1], found[0]))
    return {label: round(count / tally.labelled, 6) for label, count in ranked}


def rejection_rate(tally: Tally | PageTally) -> float:
    """The share of rows that have an error; of no rows it is 0."""
    return tally.rejected / tally.rows if tally.rows else 0.0


def check_rejections(tally: Tally | PageTally, max_rejection_rate: float) -> None:
    """Refuse a run of which too many rows have an error.

    Raises:
        MessageError: `too_many_rejected`, with the counts by code, most frequent first.
    """
    if rejection_rate(tally) <= max_rejection_rate:
        return
    ranked = sorted(tally.errors.items(), key=lambda found: (-found[1], found[0]))
    counts = ", ".join(f"{code} {count}" for code, count in ranked)
    text = (
        f"{tally.rejected} of {tally.rows} rows have an error ({counts}), the ceiling is {max_rejection_rate:g}; "
        "correct the column or the data, or raise max_rejection_rate"
    )
    raise MessageError(ErrorCode.TOO_MANY_REJECTED, text)


_Key = TypeVar("_Key", bound=str)
_Tally = TypeVar("_Tally", Tally, PageTally)


def _sorted(counts: Mapping[_Key, int]) -> dict[_Key, int]:
    return {key: counts[key] for key in sorted(counts) if counts[key]}
