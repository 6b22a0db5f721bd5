"""A legacy pod's choice of nodes by GPU labels (`nvidia.com/gpu.product: …`), as selectors of its claims.

Exists because such labels are written by a daemon that a cluster with DRA need not run, and because a node's label says
nothing of the device that a claim gets: the choice belongs into the claim. The claim's template carries it in its name
(`fairlead.api.legacy`).

What is translated: `spec.nodeSelector`, and required node affinity with one term, on gpu.product, gpu.family and
gpu.memory; gpu.present is implied by the claim. What cannot be (several terms, NotIn, a MIG device's memory, other labels)
stays in the pod as it is, with a warning. Preferences stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.api import legacy, names
from fairlead.webhook.objects.fields import Json, list_at, map_at, strings_at
from fairlead.webhook.review.patch import Draft, Step

_GPU_LABEL = "nvidia.com/"
_PRESENT = "nvidia.com/gpu.present"
_MEMORY = "nvidia.com/gpu.memory"
_REQUIRED = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """narrow: for the template's name; keys and expressions: what to remove from the pod; left: what stays, and why."""

    narrow: legacy.Narrow = ()
    keys: tuple[str, ...] = ()
    expressions: tuple[int, ...] = ()
    left: tuple[str, ...] = ()


def narrowing(spec: Json, *, mig: bool) -> Narrowing:
    """What spec says about GPUs in its node selectors. Raises MalformedError."""
    pairs: list[tuple[str, str]] = []
    keys: list[str] = []
    expressions: list[int] = []
    left: list[str] = []

    def take(key: str, operator: str, values: list[str], where: str) -> bool:
        said = _pairs(key, operator, values, mig=mig)
        if isinstance(said, list) and {name for name, _ in said} & {name for name, _ in pairs} - {"memory"}:
            said = "it is said twice"
        if isinstance(said, str):
            left.append(_stays(where, key, said))
            return False
        pairs.extend(said)
        return True

    for key, value in sorted(strings_at(spec, "nodeSelector", "spec").items()):
        if key.startswith(_GPU_LABEL) and take(key, "In", [value], f"spec.nodeSelector[{key}]"):
            keys.append(key)
    terms = _terms(spec)
    for at, term in enumerate(terms):
        for index, expression in enumerate(list_at(term, "matchExpressions", "nodeSelectorTerms")):
            key, operator = str(expression.get("key")), str(expression.get("operator"))
            if not key.startswith(_GPU_LABEL):
                continue
            where = f"{'.'.join(_REQUIRED)}.nodeSelectorTerms[{at}].matchExpressions[{index}]"
            values = expression.get("values")
            texts = [str(value) for value in values] if isinstance(values, list) else []
            if len(terms) > 1:
                left.append(_stays(where, key, "it is one of several terms"))
            elif take(key, operator, texts, where):
                expressions.append(index)
    try:
        legacy.template_name(names.LEGACY_GPU, legacy.COUNT_MAX, tuple(pairs))
    except ValueError as error:
        return Narrowing(left=(f"spec.nodeSelector: {error}; the node selectors stay as they are",))
    return Narrowing(narrow=tuple(pairs), keys=tuple(keys), expressions=tuple(expressions), left=tuple(left))


def remove(draft: Draft, found: Narrowing) -> None:
    """Take what became the claims' out of the pod."""
    for key in found.keys:
        draft.remove(("spec", "nodeSelector", key))
    if not found.expressions:
        return
    (term,) = _terms(map_at(draft.object, "spec"))
    if len(term["matchExpressions"]) == len(found.expressions) and not term.get("matchFields"):
        draft.remove(_REQUIRED)  # a term without rules would match no node
        return
    at: tuple[Step, ...] = (*_REQUIRED, "nodeSelectorTerms", 0, "matchExpressions")
    for index in sorted(found.expressions, reverse=True):
        draft.remove((*at, index))


def _terms(spec: Json) -> list[Json]:
    node, where = spec, "spec"
    for step in _REQUIRED[1:]:
        node = map_at(node, step, where)
        where = f"{where}.{step}"
    return list_at(node, "nodeSelectorTerms", where)


def _pairs(key: str, operator: str, values: list[str], *, mig: bool) -> list[tuple[str, str]] | str:
    """What one rule says of the device, or why it cannot be said."""
    if key == _PRESENT and (operator == "Exists" or (operator == "In" and values == ["true"])):
        return []
    if mig and key == _MEMORY:
        return "it is the whole GPU's memory, not the MIG device's"
    found = [legacy.narrowed(key, operator, value) for value in values]
    pairs = [pair for pair in found if pair is not None]
    if not pairs or len(pairs) < len(found):
        return "it has no counterpart among a device's attributes"
    return "it names several sizes" if key == _MEMORY and len(pairs) > 1 else pairs


def _stays(where: str, key: str, why: str) -> str:
    return f"{where}: {key} stays a rule about nodes, because {why}; the pod waits unless a node has the label"
