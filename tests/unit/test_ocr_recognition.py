"""A network's scores become text by the rules of CTC, each of which has cost somebody a wrong text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.ocr.crops import Crop
from tasks.ocr.recognition import Alphabet, Reading, batches, lines
from worker.errors import ModelError

ALPHABET = Alphabet("a\nb\nß")  # classes: blank, a, b, ß, space


def probabilities(*classes: int, sure: float = 0.9, of: int = 5) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    scores = np.full((1, len(classes), of), (1 - sure) / (of - 1), np.float32)
    scores[0, range(len(classes)), classes] = sure
    return scores


def crop(width: int, line: int = 0, reading: int = 0, part: int = 0) -> Crop:
    return Crop(np.zeros((48, width, 3), np.uint8), line, reading, part)


@pytest.mark.parametrize(
    ("classes", "text"),
    [
        pytest.param((1, 1, 2), "ab", id="repeats are one letter"),
        pytest.param((1, 0, 1), "aa", id="a blank between repeats makes two"),
        pytest.param((0, 3, 0, 4, 0, 2), "ß b", id="the space is the last class"),
        pytest.param((0, 0, 0), "", id="only blanks"),
    ],
)
def test_classes_become_text(classes: tuple[int, ...], text: str) -> None:
    (reading,) = ALPHABET.decode(probabilities(*classes))
    assert reading.text == text


def test_the_score_is_the_mean_over_the_letters_without_blanks_and_repeats() -> None:
    scores = np.concatenate(
        [
            probabilities(1, sure=0.8),
            probabilities(1, sure=0.3, of=5),
            probabilities(0, sure=0.99),
            probabilities(2, sure=0.6),
        ],
        axis=1,
    )
    (reading,) = ALPHABET.decode(scores)
    assert reading == Reading("ab", pytest.approx(0.7))


def test_nothing_has_the_score_0() -> None:
    assert ALPHABET.decode(probabilities(0, 0)) == [Reading("", 0.0)]


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x85", "\u2028", "\r"])
def test_a_character_that_ends_lines_is_a_character(separator: str) -> None:
    assert Alphabet(f"a\n{separator}\nb").characters == ("", "a", separator, "b", " ")


def test_another_number_of_classes_than_characters_is_refused() -> None:
    with pytest.raises(ModelError, match="6 classes, but its dictionary asks for 5"):
        ALPHABET.decode(probabilities(1, of=6))


@pytest.mark.parametrize("dictionary", ["a\n\nb", "a\r\nb\r", ""], ids=["empty line", "Windows", "nothing"])
def test_an_entry_that_is_not_one_character_is_refused(dictionary: str) -> None:
    with pytest.raises(ModelError, match="not one character"):
        Alphabet(dictionary)


@given(st.lists(st.integers(1, 3_200), max_size=60))
def test_a_batch_has_one_width_and_a_bounded_area(widths: list[int]) -> None:
    cut = [crop(width) for width in widths]
    found = batches(cut)
    assert sorted(index for batch in found for index in batch) == list(range(len(cut)))
    for batch in found:
        padded = {cut[index].padded_width for index in batch}
        assert len(padded) == 1
        assert len(batch) == 1 or (len(batch) <= 8 and len(batch) * padded.pop() <= 2_560)


def test_no_crops_make_no_batch() -> None:
    assert batches([]) == []


@pytest.mark.parametrize(
    "reading",
    [Reading("", 0.0), Reading("  ", 0.9), Reading("unsure", 0.49)],
    ids=["empty", "blank", "unsure"],
)
def test_a_line_that_says_nothing_sure_is_dropped(reading: Reading) -> None:
    assert lines([crop(64)], [reading]) == {}


def test_of_the_ways_to_read_a_line_the_surest_counts() -> None:
    cut = [crop(64, 0, 0), crop(64, 0, 1), crop(64, 0, 2), crop(64, 1, 0)]
    said = [Reading("6", 0.6), Reading("9", 0.9), Reading("o", 0.7), Reading("next", 0.8)]
    assert lines(cut, said) == {0: Reading("9", 0.9), 1: Reading("next", 0.8)}


def test_the_parts_of_a_line_are_joined_and_weigh_by_their_letters() -> None:
    cut = [crop(3_200, 0, 0, 0), crop(900, 0, 0, 1), crop(900, 0, 0, 2)]
    said = [Reading("first half", 0.9), Reading("", 0.0), Reading("rest", 0.55)]
    assert lines(cut, said) == {0: Reading("first half rest", pytest.approx((10 * 0.9 + 4 * 0.55) / 14))}
