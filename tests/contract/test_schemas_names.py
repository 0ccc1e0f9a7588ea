import pytest

from schemas.names import Band, band_of


@pytest.mark.parametrize(
    ("priority", "band"),
    [
        (None, Band.INTERACTIVE),
        *[(priority, Band.INTERACTIVE) for priority in (0, 1, 2)],
        *[(priority, Band.NORMAL) for priority in (3, 4, 5)],
        *[(priority, Band.BULK) for priority in (6, 7, 8, 9)],
    ],
)
def test_a_priority_belongs_to_one_band(priority: int | None, band: Band) -> None:
    assert band_of(priority) is band


@pytest.mark.parametrize("priority", [-1, 10, 255, True, 1.0, "3", [1]], ids=repr)
def test_a_priority_out_of_range_has_no_band(priority: object) -> None:
    with pytest.raises(ValueError, match="between 0 and 9"):
        band_of(priority)  # type: ignore[arg-type]  # that is the point


def test_the_band_served_first_is_the_smallest() -> None:
    assert sorted(Band) == [Band.INTERACTIVE, Band.NORMAL, Band.BULK]
