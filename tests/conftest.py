"""Where the optional real data is, and tiny worlds that several tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def _folder(variable: str) -> Path:
    place = os.environ.get(variable)
    if not place:
        pytest.skip(f"{variable} is not set")
    return Path(place).resolve()


@pytest.fixture(scope="session")
def r2r_dir() -> Path:
    """Room-to-Room in its upstream layout."""
    return _folder("LANGGOALIRL_R2R")


@pytest.fixture(scope="session")
def oracle_dir() -> Path:
    """What the original simulator and evaluators answered on the same data."""
    return _folder("LANGGOALIRL_ORACLE")
