"""The project's own tickets keep the form and the promises that their README makes."""

import re
from collections import Counter
from functools import cache
from itertools import combinations

import pytest

from tasks.classify.corpus.tickets import LABELS, LabelledTicket, Split, read

SPLITS: tuple[Split, ...] = ("train", "test", "demo")
LEAST_PER_LABEL_AND_LANGUAGE = {"train": 60, "test": 20, "demo": 12}


def text(ticket: LabelledTicket) -> str:
    return "\n".join(ticket.fields.values())


@cache
def trigrams(words: str) -> frozenset[tuple[str, ...]]:
    parts = re.findall(r"\w+", words.lower())
    return frozenset(zip(parts, parts[1:], parts[2:], strict=False))


@pytest.mark.parametrize("split", SPLITS)
def test_every_row_has_a_known_label_and_language_and_text_or_subject_and_body(split: Split) -> None:
    for ticket in read(split):
        assert ticket.label in LABELS
        assert ticket.lang in {"en", "de"}
        assert set(ticket.fields) in ({"text"}, {"subject", "body"})
        assert all(value.strip() == value != "" for value in ticket.fields.values())


def test_ids_and_texts_are_unique_over_all_splits() -> None:
    rows = [ticket for split in SPLITS for ticket in read(split)]
    assert max(Counter(ticket.id for ticket in rows).values()) == 1
    assert max(Counter(text(ticket).lower() for ticket in rows).values()) == 1


@pytest.mark.parametrize("split", SPLITS)
def test_every_label_is_there_in_both_languages_often_enough(split: Split) -> None:
    counts = Counter((ticket.label, ticket.lang) for ticket in read(split))
    assert set(counts) == {(label, lang) for label in LABELS for lang in ("en", "de")}
    assert min(counts.values()) >= LEAST_PER_LABEL_AND_LANGUAGE[split]


def test_at_least_40_training_tickets_per_label_and_language_are_no_variants() -> None:
    written = [t for t in read("train") if re.fullmatch(r"train-\w\w-\w+-\d\d", t.id)]
    assert min(Counter((ticket.label, ticket.lang) for ticket in written).values()) >= 40


def test_the_tickets_look_like_mail() -> None:
    rows = read("train")
    share = {
        "umlauts": sum(bool(re.search("[äöüÄÖÜß]", text(t))) for t in rows if t.lang == "de") / len(rows),
        "subjects": sum("subject" in t.fields for t in rows) / len(rows),
        "several lines": sum("\n" in t.fields.get("text", "") for t in rows) / len(rows),
    }
    assert share["umlauts"] > 0.3
    assert share["subjects"] > 0.05
    assert share["several lines"] > 0.2


@pytest.mark.parametrize("split", ["test", "demo"])
def test_no_ticket_is_nearly_a_training_ticket(split: Split) -> None:
    train = [ticket for ticket in read("train") if len(trigrams(text(ticket))) > 3]
    for ticket in read(split):
        mine = trigrams(text(ticket))
        for other in train:
            theirs = trigrams(text(other))
            shared = len(mine & theirs)
            assert shared <= 3 or shared / len(mine | theirs) < 0.6, (ticket.id, other.id)


def test_no_two_test_tickets_are_nearly_the_same() -> None:
    for one, other in combinations(read("test"), 2):
        mine, theirs = trigrams(text(one)), trigrams(text(other))
        assert len(mine & theirs) <= 0.5 * max(1, len(mine | theirs)), (one.id, other.id)


@pytest.mark.parametrize("split", SPLITS)
def test_nobody_real_can_be_reached(split: Split) -> None:
    for ticket in read(split):
        domains = re.findall(r"@([\w.-]+)|\b(?:www\.|https?://)([\w.-]+)", text(ticket))
        for domain in filter(None, (part for found in domains for part in found)):
            assert domain.rstrip(".").endswith(".example"), ticket.id
