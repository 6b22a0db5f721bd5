"""One claim whose parameters are nested thousands of levels deep ends nothing that watches claims."""

import json
from collections.abc import AsyncIterator

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.base import ManifestError
from fairlead.api.config import decode
from fairlead.kube import listing, watching
from fairlead.kube.resource import ResourceClaim


def nested(levels: int, kind: str) -> str:
    opening, closing = {"objects": ('{"a":', "}"), "lists": ("[", "]"), "both": ('{"a":[{"b":1},', "]}")}[kind]
    return opening * levels + "1" + closing * levels


def claim(parameters: str) -> bytes:
    opaque = {"driver": "other.example.com", "parameters": {"x": "X", "y": ']}"['}}
    spec = {"devices": {"requests": [], "config": [{"opaque": opaque}]}}
    text = json.dumps({"metadata": {"name": "c", "namespace": "ml"}, "spec": spec})
    return text.replace('"X"', parameters).encode()


@pytest.mark.parametrize("kind", ["objects", "lists", "both"])
@pytest.mark.parametrize("levels", [200, 900, 980, 2000, 5000])
async def test_a_deep_claim_is_read_listed_and_watched_and_can_be_written_out_again(kind: str, levels: int) -> None:
    body = claim(nested(levels, kind))
    read = listing.decoder(ResourceClaim).decode(body)
    assert read.metadata.name == "c"
    parameters = read.spec.devices.config[0].opaque.parameters  # type: ignore[union-attr]
    assert parameters["y"] == ']}"['
    msgspec.json.encode(read.spec)
    assert read.spec == listing.decoder(ResourceClaim).decode(body).spec
    page = listing.decode(ResourceClaim, b'{"metadata":{},"items":[%s,%s]}' % (body, claim("1")))
    assert len(page.items or ()) == 2
    assert listing.decoder(dict).decode(body)["metadata"]["name"] == "c"

    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"type":"ADDED","object":%s}\n' % body

    (event,) = [event async for event in watching.events(ResourceClaim, chunks())]
    assert isinstance(event, watching.WatchEvent) and event.object.metadata.name == "c"


@pytest.mark.parametrize("place", ["sharing", "kind", "apiVersion"])
def test_a_deep_configuration_of_ours_is_an_error_of_the_object(place: str) -> None:
    deep = json.loads(nested(900, "lists"))
    config = {"apiVersion": names.CONFIG_API_VERSION, "kind": "GpuConfig"} | {place: deep}
    with pytest.raises(ManifestError) as raised:
        decode(config, subject="x")
    assert len(str(raised.value)) < 500
