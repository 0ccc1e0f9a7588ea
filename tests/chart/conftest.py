"""What all checks of the chart are run over. `make chart` runs them: they download, so `make test` leaves them out.

It has one test that renders the chart, too: tests/faults/test_rolling_update.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chart.rendering import CASES, Document, rendered

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def documents(request: pytest.FixtureRequest) -> Sequence[Document]:
    """What the chart makes of each file of values in helm/ci, and of the one for development."""
    return rendered(request.param)
