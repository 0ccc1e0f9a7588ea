"""From what the contestants read to the named figures of the OCR benchmark: pure arithmetic.

Words are what stands between spaces. Recall is the share of a document's words that were read, precision the share of
the words read that stand in it, each word as often as it is there; the mean over the documents is reported. Speed is
the ratio of CPU seconds within a round, where the contestants read page after page in turn; the median over the rounds
counts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import mean, median
from typing import TYPE_CHECKING

from tests.benchmarks.report import Goal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.benchmarks.ocr_pages import BenchDocument

RAPIDOCR = "rapidocr"
RAPIDOCR_CLS_OFF = "rapidocr_cls_off"
PROFILES = ("accurate", "latin", "fast", "tiny")
TESSERACT = "tesseract"
FASTER_PADDLE = "faster_paddle"
FASTER_PADDLE_TINY = "faster_paddle_tiny"
# Peers that set no goal, each with the profiles that are told beside it.
OTHERS: Mapping[str, tuple[str, ...]] = {
    TESSERACT: ("accurate", "fast"),
    FASTER_PADDLE: ("accurate", "fast"),
    FASTER_PADDLE_TINY: ("tiny",),
}

TOLERANCE = 0.005
GOALS: Mapping[str, Goal] = {
    "accurate_vs_rapidocr": Goal(1.4, 1.6),
    "latin_vs_rapidocr": Goal(2.0, 2.3),
    "fast_vs_rapidocr": Goal(3.5, 4.5),
    "tiny_vs_rapidocr": Goal(8.0, 10.0),
    "identical_lines": Goal(0.96, 0.98),
    "recall_delta_accurate": Goal(-TOLERANCE, 0.01),
    "precision_delta_accurate": Goal(-TOLERANCE, 0.01),
    "recall_delta_fast": Goal(-TOLERANCE, 0.01),
    "precision_delta_fast": Goal(-TOLERANCE, 0.01),
    "peak_rss_gib": Goal(1.5, 1.0, at_most=True),
}


@dataclass(frozen=True, slots=True)
class Read:
    """What a contestant said of a document.

    Attributes:
        lines: of all its pages.
        cpu_s: for all its pages, without decoding.
    """

    lines: tuple[str, ...]
    cpu_s: float


Round = dict[str, dict[str, Read]]  # by contestant and document


def measures(rounds: Sequence[Round], documents: Sequence[BenchDocument], peak_rss_gib: float) -> dict[str, float]:
    """Return the figures by name.

    Args:
        rounds: what was read; the texts of the first count.
        documents: what stands in them.
        peak_rss_gib: of the process that read every shared file with the profile `accurate`.
    """
    first = rounds[0]
    upright = [document for document in documents if document.is_upright]
    quality = {who: _quality(reads, upright) for who, reads in first.items()}

    def speed(who: str, peer: str = RAPIDOCR) -> float:
        return median(_cpu_s(of[peer]) / _cpu_s(of[who]) for of in rounds)

    def delta(who: str, peer: str, index: int) -> float:
        return quality[who][index] - quality[peer][index]

    return {
        **{f"{who}_vs_rapidocr": speed(who) for who in PROFILES},
        **{f"{who}_vs_{peer}": speed(who, peer) for peer, own in OTHERS.items() if peer in first for who in own},
        "identical_lines": _identical(first[RAPIDOCR_CLS_OFF], first["accurate"], upright),
        "recall_delta_accurate": delta("accurate", RAPIDOCR_CLS_OFF, 0),
        "precision_delta_accurate": delta("accurate", RAPIDOCR_CLS_OFF, 1),
        "recall_delta_fast": delta("fast", RAPIDOCR, 0),
        "precision_delta_fast": delta("fast", RAPIDOCR, 1),
        "peak_rss_gib": peak_rss_gib,
        **{f"cpu_s_{who}": median(_cpu_s(of[who]) for of in rounds) for who in first},
        **{f"recall_{who}": recall for who, (recall, _) in quality.items()},
        **{f"precision_{who}": precision for who, (_, precision) in quality.items()},
        **{f"recall_{who}_turned_too": _quality(reads, documents)[0] for who, reads in first.items()},
    }


def recall_and_precision(said: Iterable[str], text: str) -> tuple[float, float]:
    """Compare what was read with what stands there."""
    words, expected = _words(said), _words([text])
    right = (words & expected).total()
    return right / max(1, expected.total()), right / max(1, words.total())


def _quality(reads: Mapping[str, Read], documents: Sequence[BenchDocument]) -> tuple[float, float]:
    pairs = [recall_and_precision(reads[document.name].lines, document.text) for document in documents]
    return mean(recall for recall, _ in pairs), mean(precision for _, precision in pairs)


def _identical(peer: Mapping[str, Read], ours: Mapping[str, Read], documents: Sequence[BenchDocument]) -> float:
    """Return the share of the peer's lines that we read letter by letter alike."""
    theirs = [Counter(peer[document.name].lines) for document in documents]
    same = [lines & Counter(ours[document.name].lines) for lines, document in zip(theirs, documents, strict=True)]
    return sum(lines.total() for lines in same) / sum(lines.total() for lines in theirs)


def _cpu_s(reads: Mapping[str, Read]) -> float:
    return sum(read.cpu_s for read in reads.values())


def _words(texts: Iterable[str]) -> Counter[str]:
    return Counter(word for text in texts for word in text.split())
