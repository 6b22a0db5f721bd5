"""What the apiserver answers to a lookup, found by fuzzing: an answer that cannot be read allows nothing, and ends no review."""

from typing import Any, cast

import pytest

from fairlead.kube.client import Client
from fairlead.webhook.cache.informer_cache import LiveLookup, LookupNeededError
from tests.support.webhook import review

POD = {"kind": "Pod", "metadata": {"name": "p", "namespace": "ml"}}


class Apiserver:
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def request(self, *_: Any, **__: Any) -> bytes:
        return self._body


@pytest.mark.parametrize(
    ("body", "allowed"),
    [
        (b'{"status":{"allowed":true}}', True),
        (b'{"status":{"allowed":false}}', False),
        (b'{"status":null}', False),
        (b'{"status":[]}', False),
        (b'{"status":{"allowed":"yes"}}', False),
        (b'{"status":{"allowed":1}}', False),
        (b"not JSON", False),
        (b'"\xff"', False),
    ],
)
async def test_only_an_answer_that_says_so_allows_to_remove_gates(body: bytes, allowed: bool) -> None:
    lookup = LiveLookup(cast("Client", Apiserver(body)))
    with pytest.raises(LookupNeededError) as needed:
        lookup.may_remove_gate(review(POD))
    await lookup.perform(needed.value)
    assert lookup.may_remove_gate(review(POD)) is allowed
