"""Node selectors of a legacy pod on GPU labels (`nvidia.com/gpu.product: …`), translated into selectors of its claims.

A daemon that a cluster with DRA need not run writes such labels, and a node's label says nothing of the device that a claim gets:
the selection belongs into the claim. The claim's template carries it in its name (`fairlead.api.legacy`).

Translated: `spec.nodeSelector`, and required node affinity with one term, on gpu.product, gpu.family and gpu.memory; the claim
implies gpu.present. A product such as `NVIDIA-H100-80GB-HBM3-MIG-1g.10gb`, of nodes with the device plugin's strategy `single`, makes
the pod's `nvidia.com/gpu` mean MIG devices of that profile, one that ends with `-SHARED` a share. What cannot be translated (several terms, NotIn, a MIG device's memory, other labels) stays in the pod as it
is, with a warning. Preferences stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.api import legacy, names
from fairlead.webhook.objects.fields import Json, dotted, list_at, map_at, strings_at
from fairlead.webhook.objects.pods import REQUIRED_NODE_AFFINITY, required_node_terms
from fairlead.webhook.review.patch import PatchBuilder

_GPU_LABEL = "nvidia.com/"
_PRESENT = "nvidia.com/gpu.present"
_MEMORY = "nvidia.com/gpu.memory"
_PRODUCT = "nvidia.com/gpu.product"


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """narrow: for the template's name; keys and expressions: what to remove from the pod; untranslated: warnings.

    meant: what `nvidia.com/gpu` means here, by the product label: a MIG resource (strategy `single`), or shares.
    """

    narrow: legacy.Narrow = ()
    keys: tuple[str, ...] = ()
    expressions: tuple[int, ...] = ()
    untranslated: tuple[str, ...] = ()
    meant: str | None = None


def narrowing(spec: Json, *, mig: bool, shares: bool) -> Narrowing:
    """What spec requires of GPUs in its node selectors. `shares`: its limits may mean one share each. Raises MalformedError."""
    pairs: list[tuple[str, str]] = []
    keys: list[str] = []
    expressions: list[int] = []
    untranslated: list[str] = []
    meant: list[str] = []

    def translate(key: str, operator: str, values: list[str], where: str) -> bool:
        single = None if mig or operator != "In" or key != _PRODUCT else _single(values, shares=shares)
        found = _pairs(key, operator, values, mig=mig) if single is None else [("product", name) for name in single[0]]
        if isinstance(found, list) and {name for name, _ in found} & {name for name, _ in pairs} - {"memory"}:
            found = "it is said twice"
        if isinstance(found, str):
            untranslated.append(_stays(where, key, found))
            return False
        pairs.extend(found)
        meant.extend([] if single is None else [single[1]])
        return True

    for key, value in sorted(strings_at(spec, "nodeSelector", "spec").items()):
        if key.startswith(_GPU_LABEL) and translate(key, "In", [value], f"spec.nodeSelector[{key}]"):
            keys.append(key)
    terms = required_node_terms(spec)
    for at, term in enumerate(terms):
        for index, expression in enumerate(list_at(term, "matchExpressions", "nodeSelectorTerms")):
            key, operator = str(expression.get("key")), str(expression.get("operator"))
            if not key.startswith(_GPU_LABEL):
                continue
            where = f"{dotted(REQUIRED_NODE_AFFINITY)}.nodeSelectorTerms[{at}].matchExpressions[{index}]"
            values = expression.get("values")
            texts = [str(value) for value in values] if isinstance(values, list) else []
            if len(terms) > 1:
                untranslated.append(_stays(where, key, "it is one of several terms"))
            elif translate(key, operator, texts, where):
                expressions.append(index)
    try:
        legacy.template_name(*_longest(meant[0] if meant else names.LEGACY_GPU), tuple(pairs))
    except ValueError as error:
        return Narrowing(untranslated=(f"spec.nodeSelector: {error}; the node selectors stay as they are",))
    return Narrowing(
        narrow=tuple(pairs),
        keys=tuple(keys),
        expressions=tuple(expressions),
        untranslated=tuple(untranslated),
        meant=meant[0] if meant else None,
    )


def _longest(resource: str) -> tuple[str, int]:
    """The resource with the count that makes the longest name."""
    return resource, 1 if legacy.is_shared(resource) else legacy.COUNT_MAX


def remove_translated(patch: PatchBuilder, found: Narrowing) -> None:
    """Remove from the pod what its claims now select."""
    for key in found.keys:
        patch.remove(("spec", "nodeSelector", key))
    if not found.expressions:
        return
    (term,) = required_node_terms(map_at(patch.patched, "spec"))
    if len(term["matchExpressions"]) == len(found.expressions) and not term.get("matchFields"):
        patch.remove(REQUIRED_NODE_AFFINITY)  # a term without rules would match no node
        return
    for index in sorted(found.expressions, reverse=True):
        patch.remove((*REQUIRED_NODE_AFFINITY, "nodeSelectorTerms", 0, "matchExpressions", index))


def _single(values: list[str], *, shares: bool) -> tuple[list[str], str] | None:
    """The products, and the one resource beside nvidia.com/gpu, that these product labels stand for; None where there is none."""
    found = [legacy.meant_by_product(value) for value in values]
    products = [each[0] for each in found if each is not None]
    resources = {each[1] for each in found if each is not None}
    if len(products) < len(values) or len(resources) != 1:
        return None
    (resource,) = resources
    return (products, resource) if shares or not legacy.is_shared(resource) else None


def _pairs(key: str, operator: str, values: list[str], *, mig: bool) -> list[tuple[str, str]] | str:
    """What one rule requires of the device, or why it cannot be translated."""
    if key == _PRESENT and (operator == "Exists" or (operator == "In" and values == ["true"])):
        return []
    if mig and key == _MEMORY:
        return "it is the whole GPU's memory, not the MIG device's"
    found = [legacy.narrowed(key, operator, value) for value in values]
    pairs = [pair for pair in found if pair is not None]
    if not pairs or len(pairs) < len(found):
        return "it has no counterpart among a device's attributes"
    return "it names several sizes" if key == _MEMORY and len(pairs) > 1 else pairs


def _stays(where: str, key: str, reason: str) -> str:
    return f"{where}: {key} stays a rule about nodes, because {reason}; the pod waits unless a node has the label"
