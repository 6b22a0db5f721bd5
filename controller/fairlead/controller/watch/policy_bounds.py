"""What TenancyPolicies bound or set in each namespace: `maxMinRuntime` and its kin, and `models`, of Enforce policies. The rest is the
webhook's.

A policy that cannot be read, or whose selector is broken, binds nothing here; the webhook says so when it is written. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.api.base import ManifestError
from fairlead.api.bounds import NO_BOUNDS, Bounds
from fairlead.api.models import Models
from fairlead.api.policy import TenancyPolicy
from fairlead.kube import labels
from fairlead.kube.objects import LabelSelector

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PolicyBounds:
    """Of one policy."""

    selector: labels.Selector
    exempt: frozenset[str]
    bounds: Bounds
    models: Models | None = None


def read_policies(policies: Iterable[Mapping[str, Any]]) -> tuple[PolicyBounds, ...]:
    """Those that bound or set something, in name order."""
    found: list[tuple[str, PolicyBounds]] = []
    for raw in policies:
        try:
            policy = TenancyPolicy.stored(raw)
            bounds = policy.bounds
            if policy.spec.mode != "Enforce" or (bounds == NO_BOUNDS and policy.spec.models is None):
                continue
            selector = policy.spec.namespace_selector.model_dump(by_alias=True, mode="json")
            compiled = labels.from_label_selector(msgspec.convert(selector, LabelSelector))
        except (ManifestError, labels.SelectorError, msgspec.ValidationError) as error:
            log.warning("%s", error)
            continue
        exempt = frozenset(policy.spec.exemptions.namespaces)
        found.append((policy.name, PolicyBounds(compiled, exempt, bounds, policy.spec.models)))
    return tuple(each for _, each in sorted(found, key=lambda pair: pair[0]))


def bounds_of(policies: Iterable[PolicyBounds], namespace: str, namespace_labels: Mapping[str, str]) -> Bounds:
    """The tightest of those that select the namespace."""
    found = NO_BOUNDS
    for policy in policies:
        if namespace not in policy.exempt and policy.selector.matches(namespace_labels):
            found = found.within(policy.bounds)
    return found


def models_of(policies: Iterable[PolicyBounds], namespace: str, namespace_labels: Mapping[str, str]) -> Models | None:
    """What those say that select the namespace: `same` where they differ. None: nothing."""
    said = {
        policy.models
        for policy in policies
        if policy.models is not None and namespace not in policy.exempt and policy.selector.matches(namespace_labels)
    }
    return min(said, key=("same", "any").index, default=None)
