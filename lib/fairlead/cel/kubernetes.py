"""The environments of Kubernetes by release: device selectors, admission policies, CRD rules.

PARTS says which release brought each library and macro. An apiserver of release R evaluates stored expressions with all that R
has. New ones may use only what the release before it has, so that they still compile after a rollback; what a feature gate guards
they have where the gate is on. Worked example: 1.34 brought lists, so an apiserver of 1.34 evaluates `flatten()` where it finds it
stored, refuses it in a new policy ("undeclared reference to 'flatten'"), and one of 1.35 admits it.
ADMISSION, RULE, NEW_DEVICE and DEVICE are those of the newest release. Device selectors add `cel.bind`, `includes` and the device;
the others add only variables, which are dyn here, for the objects are plain JSON.

Source: k8s.io/apiserver/pkg/cel/environment/{base,environment}.go (IntroducedVersion, FeatureEnabled) and
component-base/compatibility/version.go of 1.34 to 1.36; dynamic-resource-allocation/cel/compile.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from fairlead.cel import types as t
from fairlead.cel.declare import Library
from fairlead.cel.device import DEVICE_FIELDS, DEVICE_TYPE, DeviceView
from fairlead.cel.environment import Environment
from fairlead.cel.library.authz import AUTHZ
from fairlead.cel.library.clock import CLOCK
from fairlead.cel.library.conversions import CONVERSIONS
from fairlead.cel.library.formats import FORMATS
from fairlead.cel.library.kubernetes import INCLUDES, QUANTITIES, VERSIONS
from fairlead.cel.library.lists import KUBERNETES_LISTS, LISTS, SETS, TWO_VARIABLES
from fairlead.cel.library.net import NET, URLS
from fairlead.cel.library.optionals import OPTIONALS
from fairlead.cel.library.regex import REGEX
from fairlead.cel.library.standard import STANDARD
from fairlead.cel.library.strings import FORMAT, STRINGS
from fairlead.cel.syntax import macros
from fairlead.kube.releases import NEWEST_TRIED, Minor, need

_ALWAYS: Final[Minor] = (1, 0)


@dataclass(frozen=True, slots=True)
class Part:
    """A library, macros or names of types, and the release that brought them (their newest function, where they grew)."""

    introduced: Minor
    library: Library | None = None
    macros: macros.Macros | None = None
    types: tuple[t.Type, ...] = ()


PARTS: Final = (
    Part(_ALWAYS, STANDARD, macros.STANDARD),
    Part(_ALWAYS, CONVERSIONS),
    Part(_ALWAYS, CLOCK),
    Part((1, 28), OPTIONALS, macros.OPTIONAL),
    Part((1, 29), STRINGS),
    Part((1, 34), LISTS, macros.SORT_BY),
    Part((1, 32), TWO_VARIABLES, macros.TWO_VARIABLES),
    Part(_ALWAYS, KUBERNETES_LISTS),
    Part((1, 29), SETS),
    Part(_ALWAYS, REGEX),
    Part(_ALWAYS, URLS),
    Part((1, 30), NET, types=(t.IP, t.CIDR)),  # the others' names cannot be written
    Part((1, 31), FORMATS),
    Part((1, 28), QUANTITIES),
    Part((1, 33), VERSIONS),
    Part((1, 31), AUTHZ),  # from 1.27, with selectors from 1.31
    Part((1, 29), FORMAT),
)
_BIND: Final = Part((1, 31), macros=macros.BINDINGS)
_INCLUDES: Final = Part((1, 36), INCLUDES)
_SHARED: Final = "allowMultipleAllocations"  # of a device, since 1.34

CEL: Final = Environment.of(
    (STANDARD, CONVERSIONS, CLOCK, OPTIONALS),
    (macros.STANDARD, macros.OPTIONAL),
)


def _of(parts: tuple[Part, ...], known: Minor, onto: Environment | None = None) -> Environment:
    """What these parts had in that release."""
    admitted = [part for part in parts if part.introduced <= known]
    return (onto or Environment()).extend(
        libraries=[part.library for part in admitted if part.library is not None],
        macros=[part.macros for part in admitted if part.macros is not None],
        types={type_.name: type_ for part in admitted for type_ in part.types},
    )


def _devices(base: Environment, known: Minor, fields: Mapping[str, t.Type], *more: Part) -> Environment:
    return _of((_BIND, *more), known, base).extend(
        variables={"device": DEVICE_TYPE},
        objects={DEVICE_TYPE.name: fields},
        attributes={(DEVICE_TYPE.name, name): python for name, python in DeviceView.cel_fields.items()},
    )


_ADMISSION: Final = ("object", "oldObject", "request", "namespaceObject", "params", "variables", "authorizer")
_RULE: Final = ("self", "oldSelf")


@dataclass(frozen=True, slots=True, eq=False)
class Environments:
    """Those of one release; `new_` of expressions that are not stored yet, the others of stored ones."""

    base: Environment
    new_base: Environment
    admission: Environment
    new_admission: Environment
    rule: Environment
    new_rule: Environment
    device: Environment
    new_device: Environment


def known_to_new(release: Minor) -> Minor:
    """The release whose functions an apiserver without flags of its own admits in new expressions."""
    return release[0], release[1] - 1


@cache
def environments(release: Minor) -> Environments:
    """The environments of an apiserver of that release without flags of its own."""
    base, new_base = _of(PARTS, release), _of(PARTS, known_to_new(release))
    fields = dict(DEVICE_FIELDS)
    if not need("consumable-capacity").holds(release):
        del fields[_SHARED]
    return Environments(
        base=base,
        new_base=new_base,
        admission=base.extend(variables=dict.fromkeys(_ADMISSION, t.DYN)),
        new_admission=new_base.extend(variables=dict.fromkeys(_ADMISSION, t.DYN)),
        rule=base.extend(variables=dict.fromkeys(_RULE, t.DYN)),
        new_rule=new_base.extend(variables=dict.fromkeys(_RULE, t.DYN)),
        device=_devices(base, release, DEVICE_FIELDS, _INCLUDES),
        new_device=_devices(new_base, known_to_new(release), fields),  # `includes` is behind a gate that is off
    )


# Everything but format(), whose clauses differ from the specification's.
COMMON: Final = _of(tuple(part for part in PARTS if part.library is not FORMAT), NEWEST_TRIED)
_NEWEST: Final = environments(NEWEST_TRIED)
BASE: Final = _NEWEST.base
# What the newest release admits in new selectors; DEVICE is what it evaluates in stored ones.
NEW_DEVICE: Final = _NEWEST.new_device
DEVICE: Final = _NEWEST.device
ADMISSION: Final = _NEWEST.admission
RULE: Final = _NEWEST.rule
