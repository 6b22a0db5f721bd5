"""Which release of Kubernetes the clusters of a run are: `KUBERNETES=1.34 pytest tests/controller`, or `make test KUBERNETES=1.34`.

Without the variable it is the newest that was tried. Tests that are about a release name it (`release=(1, 34)`); tests of a
matter that differs from release to release run on several:

    @pytest.mark.parametrize("release", OLDEST_AND_NEWEST)
    async def test_…(release): async with cluster(NodeSpec("a"), release=release) as made: …
"""

from __future__ import annotations

import os
from typing import Final

import pytest

from fairlead.kube.releases import OLDEST, TRIED, Minor, written
from fairlead.sandbox.release import NEWEST, Release, chosen

VARIABLE: Final = "KUBERNETES"


def of_this_run() -> Release:
    """Raises ValueError, which names the releases there are."""
    return chosen(os.environ.get(VARIABLE) or NEWEST.name)


def _params(*releases: Minor) -> list[object]:
    return [pytest.param(each, id=written(each)) for each in releases]


EVERY: Final = _params(*sorted(TRIED))
OLDEST_AND_NEWEST: Final = _params(OLDEST, NEWEST.minor)
