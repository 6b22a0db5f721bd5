"""What the webhook records of a claim's source, the controller reads; what a user wrote is told apart."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api import claim_sources, names
from fairlead.api.claim_sources import ClaimSource, ClaimSourcesError
from fairlead.api.object_names import is_dns_subdomain

KEY = b"shared by the replicas"
SOURCES = {
    "gpu": ClaimSource(claim="train-gpu-2456789bcdf", template="one-gpu", uid="6b0e"),
    "fairlead-gpu-0": ClaimSource(claim="train-fairlead-gpu-0-bbbbbbbbbbb", template="fairlead-gpu-2"),
}


def _annotations(**changes: str) -> dict[str, str]:
    terms = {"namespace": "ml", "owner_uid": "job-1"} | changes
    return {names.CLAIM_SOURCES: claim_sources.annotation(SOURCES, key=KEY, **terms)}


def test_what_is_written_is_read() -> None:
    assert claim_sources.read(_annotations()) == SOURCES
    assert claim_sources.read({}) == {}
    assert SOURCES["fairlead-gpu-0"].is_legacy
    assert not SOURCES["gpu"].is_legacy


@pytest.mark.parametrize(
    ("namespace", "owner", "key"), [("red", "job-1", KEY), ("ml", "job-2", KEY), ("ml", "job-1", b"")]
)
def test_of_another_namespace_owner_or_key_it_is_not_genuine(namespace: str, owner: str, key: bytes) -> None:
    assert not claim_sources.is_genuine(_annotations(), namespace=namespace, owner_uid=owner, key=key)


def test_a_changed_source_is_not_genuine() -> None:
    document = json.loads(_annotations()[names.CLAIM_SOURCES])
    document["claims"]["gpu"]["template"] = "eight-gpus"
    forged = {names.CLAIM_SOURCES: json.dumps(document)}
    assert claim_sources.read(forged)["gpu"].template == "eight-gpus"
    assert not claim_sources.is_genuine(forged, namespace="ml", owner_uid="job-1", key=KEY)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "[]",
        "{",
        "{}",
        "[" * 100_000,
        "x" * 70_000,
        '{"claims":[],"hmac":"a"}',
        '{"claims":{},"hmac":1}',
        '{"claims":{"gpu":1},"hmac":"a"}',
        '{"claims":{"gpu":{}},"hmac":"a"}',
        '{"claims":{"gpu":{"claim":"c","template":"t"}},"hmac":"a"}',
        '{"claims":{"gpu":{"claim":"c","template":1,"uid":"u"}},"hmac":"a"}',
        '{"claims":{"gpu":{"claim":"a/b","template":"t","uid":"u"}},"hmac":"a"}',
        '{"claims":{"gpu":{"claim":"c","request":"one-gpu"}},"hmac":"a"}',
        '{"claims":{"gpu":{"claim":"c","request":"fairlead-gpu-2","template":"t"}},"hmac":"a"}',
        '{"claims":{"gpu":{"claim":"c","request":"fairlead-gpu-2","template":"t","uid":"u"}},"hmac":"a"}',
        '{"claims":{"UPPER":{"claim":"c","template":"t","uid":"u"}},"hmac":"a"}',
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_the_annotation(value: str) -> None:
    with pytest.raises(ClaimSourcesError, match="claim-sources"):
        claim_sources.read({names.CLAIM_SOURCES: value})


LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)

_PART = r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?"
PREFIXES = st.from_regex(rf"{_PART}(\.{_PART}){{0,6}}-", fullmatch=True)


@given(st.one_of(st.just(""), LABELS, PREFIXES), LABELS, st.text())
def test_a_claims_name_is_valid_and_fresh(base: str, entry: str, seed: str) -> None:
    name = claim_sources.claim_name(base, entry, seed)
    assert len(name) <= claim_sources.CLAIM_NAME_MAX
    assert is_dns_subdomain(name)
    assert name == claim_sources.claim_name(base, entry, seed)
    random = name[-claim_sources.RANDOM_CHARS :]
    assert set(random) <= set(claim_sources.ALPHABET)
    assert random != claim_sources.claim_name(base, entry, f"{seed}.")[-claim_sources.RANDOM_CHARS :]
