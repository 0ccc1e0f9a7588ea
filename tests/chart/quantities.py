"""Kubernetes' quantities as numbers."""

from __future__ import annotations

from typing import Final

_UNITS: Final = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "m": 1e-3,
}


def quantity(text: str) -> float:
    """Return 1.5 for 1500m, 1073741824 for 1Gi."""
    for unit, factor in _UNITS.items():
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    return float(text)
