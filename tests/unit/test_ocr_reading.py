"""Lines are put into the order in which a person reads them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.ocr.reading import rows, text

Corners = np.ndarray[tuple[int, int], np.dtype[np.float32]]


def box(left: float, top: float, width: float = 100, height: float = 20) -> Corners:
    right, bottom = left + width, top + height
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]], np.float32)


def slanted(corners: Corners, degrees: float) -> Corners:
    angle = np.radians(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return (corners @ turn).astype(np.float32)


PLACES = st.tuples(st.integers(0, 2_000), st.integers(0, 2_000), st.integers(1, 500), st.integers(5, 60))


def test_no_lines_make_no_text() -> None:
    assert rows([]) == []
    assert text([], []) == ""


def test_lines_side_by_side_are_one_row_from_left_to_right() -> None:
    boxes = [box(300, 102), box(0, 98), box(0, 140)]
    assert rows(boxes) == [[1, 0], [2]]
    assert text(boxes, ["€ 5", "total", "next"]) == "total € 5\nnext"


def test_a_headline_beside_small_print_is_one_row() -> None:
    assert rows([box(0, 100, height=40), box(300, 112, height=14)]) == [[0, 1]]


def test_lines_that_barely_overlap_are_two_rows() -> None:
    assert rows([box(0, 100), box(150, 112)]) == [[0], [1]]


def test_a_table_in_a_slanted_scan_keeps_its_rows() -> None:
    places = [(left, 40 * row) for row in range(6) for left in (0, 300, 900, 1_500)]
    boxes = [slanted(box(left, top), 2.5) for left, top in places]
    assert rows(boxes) == [list(range(4 * row, 4 * row + 4)) for row in range(6)]


@given(st.lists(PLACES, max_size=12))
def test_every_line_is_read_once(places: list[tuple[int, int, int, int]]) -> None:
    found = rows([box(*place) for place in places])
    assert sorted(index for row in found for index in row) == list(range(len(places)))


@given(st.lists(PLACES, max_size=12, unique=True), st.randoms(use_true_random=False))
def test_the_order_of_the_boxes_does_not_matter(places: list[tuple[int, int, int, int]], chance: object) -> None:
    order = list(range(len(places)))
    chance.shuffle(order)  # type: ignore[attr-defined]  # hypothesis gives a Random
    names = [str(place) for place in places]
    direct = text([box(*place) for place in places], names)
    assert text([box(*places[index]) for index in order], [names[index] for index in order]) == direct


@given(st.lists(PLACES, max_size=12), st.integers(-500, 500), st.integers(1, 4))
def test_place_and_scale_of_the_page_do_not_matter(
    places: list[tuple[int, int, int, int]], shift: int, scale: int
) -> None:
    boxes = [box(*place) for place in places]
    assert rows([(corners + shift) * scale for corners in boxes]) == rows(boxes)


@pytest.mark.parametrize("count", [1_000])
def test_many_lines_are_ordered_quickly(count: int) -> None:
    assert len(rows([box(0, 30 * number) for number in range(count)])) == count
