"""One object that is nested as deeply as the apiserver stores keeps nobody from reading the others of its kind."""

import json
from collections.abc import AsyncIterator

import pytest

from fairlead.kube import listing, nesting, watching
from fairlead.kube.resource import ResourceClaim
from tests.support.driver.claims import gpu_config, raw_claim


def bomb(levels: int, opening: bytes, closing: bytes) -> bytes:
    """A claim with opaque parameters of another driver, nested this deeply."""
    config = gpu_config() | {"opaque": {"driver": "other.example.com", "parameters": "BOMB"}}
    text = json.dumps(
        raw_claim("u1", [{"request": "gpu", "driver": "d", "pool": "p", "device": "x"}], config=[config])
    ).encode()
    return text.replace(
        b'"BOMB"', b'{"text": "a \\"]}[{ b", "deep": ' + opening * levels + b"1" + closing * levels + b"}"
    )


KINDS = [(b"[", b"]"), (b'{"a":', b"}")]


@pytest.mark.parametrize(("opening", "closing"), KINDS)
@pytest.mark.parametrize("levels", [1_000, 5_000, 10_000])
def test_a_list_with_such_a_claim_is_read(levels: int, opening: bytes, closing: bytes) -> None:
    other = json.dumps(raw_claim("u2", [])).encode()
    body = b'{"metadata": {"resourceVersion": "7"}, "items": [' + bomb(levels, opening, closing) + b"," + other + b"]}"
    page = listing.decode(ResourceClaim, body)
    assert [claim.metadata.uid for claim in page.items or ()] == ["u1", "u2"]


@pytest.mark.parametrize(("opening", "closing"), KINDS)
async def test_a_watch_with_such_a_claim_goes_on(opening: bytes, closing: bytes) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for each in (bomb(5_000, opening, closing), json.dumps(raw_claim("u2", [])).encode()):
            yield b'{"type": "ADDED", "object": ' + each.replace(b"\n", b" ") + b"}\n"

    found = [event.object.metadata.uid async for event in watching.events(ResourceClaim, chunks())]  # type: ignore[union-attr]
    assert found == ["u1", "u2"]


def test_only_what_is_below_the_last_level_is_cut() -> None:
    body = b'{"a": [[1, "]"], {"b": [2, {"c": 3}], "d": "\\\\"}], "e": {}}'
    assert nesting.cut(body, levels_max=2) == b'{"a": [null, null], "e": {}}'
    assert nesting.cut(body, levels_max=3) == b'{"a": [[1, "]"], {"b": null, "d": "\\\\"}], "e": {}}'
    assert nesting.cut(body, levels_max=9) == body
