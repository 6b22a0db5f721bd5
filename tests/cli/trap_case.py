"""A manifest with a trap, and what the trap cases share."""

from __future__ import annotations

from dataclasses import dataclass

POD = "{resourceClaims: [{name: gpu, resourceClaimTemplateName: one}], containers: [{name: a, image: b, resources: {claims: [{name: gpu}]}}]}"
LEGACY = "{containers: [{name: a, image: b, resources: {limits: {nvidia.com/gpu: 1}}}]}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """`text` with BAD and GOOD: the first stands where the trap is found at `field`, the second where nothing is."""

    name: str
    text: str
    bad: str
    good: str
    field: str
    says: str
    level: str = "fails"


def plain(text: str, **words: str) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text
