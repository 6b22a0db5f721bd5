"""Versions read, compare and normalise as Kubernetes' semver library does."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kube.semver import Version, VersionError, normalize

ASCENDING = [
    "0.9.9",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.10.0",
    "580.82.7",
]


def test_precedence_follows_semver_2() -> None:
    versions = [Version.parse(text) for text in ASCENDING]
    assert versions == sorted(versions, key=lambda version: version)
    assert all(a.compare(b) == -1 and b.compare(a) == 1 for a, b in itertools.pairwise(versions))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.0",
        "v1.0.0",
        "01.0.0",
        "1.0.0-",
        "1.0.0-01",
        "1.0.0+",
        "a.b.c",
        "1.0.0.0",
        "200K",
        "99999999999999999999.0.0",
        "1.0.0-é",
        "١.0.0",
    ],
)
def test_what_is_not_strict_is_refused(text: Any) -> None:
    with pytest.raises(VersionError):
        Version.parse(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [("v1.0", "1.0.0"), ("1", "1.0.0"), ("01.01.01", "1.1.1"), ("v1.2.3-rc.1", "1.2.3-rc.1"), ("00.0.0", "0.0.0")],
)
def test_sloppy_ones_normalise(text: Any, canonical: Any) -> None:
    assert str(normalize(text)) == canonical


@pytest.mark.parametrize("text", ["1.0-rc1", "", "v", "Three", "1.0+b"])
def test_what_cannot_be_normalised_is_refused(text: Any) -> None:
    with pytest.raises(VersionError):
        normalize(text)


@given(st.text(alphabet="0123456789.-+vab", max_size=12))
def test_reading_never_crashes_and_print_reads_back(text: Any) -> None:
    try:
        version = Version.parse(text)
    except VersionError:
        return
    assert str(version) == text
