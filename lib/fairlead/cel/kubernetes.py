"""The environments of Kubernetes 1.36 and the libraries of each: device selectors, admission policies, CRD rules.

BASE has everything of the API server's base environment up to 1.36. Device selectors add `cel.bind`, `includes` and the
device. The others add only variables, which are dyn here, for the objects are plain JSON.

Source: k8s.io/apiserver/pkg/cel/environment/base.go, dynamic-resource-allocation/cel/compile.go.
"""

from __future__ import annotations

from typing import Final

from fairlead.cel import types as t
from fairlead.cel.device import DEVICE_FIELDS, DEVICE_TYPE, DeviceView
from fairlead.cel.environment import Environment
from fairlead.cel.library.authz import AUTHZ
from fairlead.cel.library.clock import CLOCK
from fairlead.cel.library.conversions import CONVERSIONS
from fairlead.cel.library.formats import FORMATS
from fairlead.cel.library.kubernetes import INCLUDES, QUANTITIES, VERSIONS
from fairlead.cel.library.lists import KUBERNETES_LISTS, LISTS, SETS, TWO_VARIABLES
from fairlead.cel.library.net import NET
from fairlead.cel.library.optionals import OPTIONALS
from fairlead.cel.library.regex import REGEX
from fairlead.cel.library.standard import STANDARD
from fairlead.cel.library.strings import FORMAT, STRINGS
from fairlead.cel.library.urls import URLS
from fairlead.cel.syntax import macros

CEL: Final = Environment.of(
    (STANDARD, CONVERSIONS, CLOCK, OPTIONALS),
    (macros.STANDARD, macros.OPTIONAL),
)
# Everything but format(), whose clauses differ from the specification's.
COMMON: Final = CEL.extend(
    libraries=(
        STRINGS,
        LISTS,
        TWO_VARIABLES,
        KUBERNETES_LISTS,
        SETS,
        REGEX,
        URLS,
        NET,
        FORMATS,
        QUANTITIES,
        VERSIONS,
        AUTHZ,
    ),
    macros=(macros.TWO_VARIABLES, macros.SORT_BY),
    types={type_.name: type_ for type_ in (t.IP, t.CIDR)},  # the others' names cannot be written
)
BASE: Final = COMMON.extend(libraries=(FORMAT,))
# What 1.36 admits in new selectors; DEVICE is what it evaluates in stored ones. `includes` is behind a feature gate.
NEW_DEVICE: Final = BASE.extend(
    macros=(macros.BINDINGS,),
    variables={"device": DEVICE_TYPE},
    objects={DEVICE_TYPE.name: DEVICE_FIELDS},
    attributes={(DEVICE_TYPE.name, name): python for name, python in DeviceView.cel_fields.items()},
)
DEVICE: Final = NEW_DEVICE.extend(libraries=(INCLUDES,))
ADMISSION: Final = BASE.extend(
    variables=dict.fromkeys(
        ("object", "oldObject", "request", "namespaceObject", "params", "variables", "authorizer"), t.DYN
    ),
)
RULE: Final = BASE.extend(variables=dict.fromkeys(("self", "oldSelf"), t.DYN))
