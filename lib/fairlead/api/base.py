"""What all of our kinds share: strictness, names, quantities, label selectors, and errors with paths.

Unknown fields are refused in what users write, and passed over in what the cluster holds (a newer version may have written
them). Only the form of a value is checked: whether a queue's parent exists or a selector compiles is checked by the webhook.
Every fault reads `object: path: what is wrong; what to do`, for example
`Queue ml: spec.flavors[0].limt: unknown field; did you mean limit?`
"""

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from fairlead.api import names
from fairlead.api.nulls import without_nulls
from fairlead.api.object_names import DNS_SUBDOMAIN, is_dns_subdomain, is_label_key

QUANTITY = r"\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?"
CEL_LENGTH_MAX = 10 * 1024
"""resource.k8s.io/v1: CELSelectorExpressionMaxLength."""

_QUANTITY = re.compile(QUANTITY)


class ManifestError(ValueError):
    """An object of our kinds is not valid: one line per fault, each with object, field and next step."""

    def __init__(self, subject: str, faults: tuple[str, ...]) -> None:
        self.subject = subject
        self.faults = faults
        super().__init__("\n".join(f"{subject}: {fault}" for fault in faults))


def _object_name(text: str) -> str:
    if not is_dns_subdomain(text):
        raise ValueError(f"{text!r} is no object name: use lower case letters, digits, '-' and '.', at most 253")
    return text


def _label_key(text: str) -> str:
    if not is_label_key(text):
        raise ValueError(f"{text!r} is no label key: use [prefix/]name, such as topology.kubernetes.io/rack")
    return text


def _quantity(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(  # noqa: TRY004 - pydantic reports ValueError as a finding
            f"{value!r} is no quantity: write a whole number or a string such as '4' or '640Gi'"
        )
    if isinstance(value, int):
        if value < 0:
            raise ValueError(f"{value} is negative: write 0 or more")
        return value
    if value.startswith("-"):
        raise ValueError(f"{value!r} is negative: write 0 or more")
    if not _QUANTITY.fullmatch(value):
        raise ValueError(f"{value!r} is no quantity: write a number with an optional suffix, such as '4' or '640Gi'")
    return value


ObjectName = Annotated[
    str, AfterValidator(_object_name), Field(json_schema_extra={"maxLength": 253, "pattern": f"^{DNS_SUBDOMAIN}$"})
]
LabelKey = Annotated[str, AfterValidator(_label_key), Field(json_schema_extra={"maxLength": 317, "minLength": 1})]
Quantity = Annotated[
    int | str,
    BeforeValidator(_quantity),
    Field(json_schema_extra={"x-kubernetes-int-or-string": True, "pattern": f"^{QUANTITY}$", "maxLength": 32}),
]
"""A number or a string in Kubernetes' quantity grammar, not negative."""
LabelValue = Annotated[str, Field(max_length=63)]
CelExpression = Annotated[str, Field(min_length=1, max_length=CEL_LENGTH_MAX)]


class Part(BaseModel):
    """A part of one of our kinds: camelCase in JSON, snake_case in Python, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


class SelectorRequirement(Part):
    """One rule about a label's value."""

    key: LabelKey
    """The label's key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the values are compared."""
    values: list[LabelValue] = Field(default_factory=list, max_length=64)
    """The values; empty with Exists and DoesNotExist."""

    @model_validator(mode="after")
    def _values_fit_operator(self) -> Self:
        if self.operator in {"In", "NotIn"} and not self.values:
            raise ValueError(f"{self.operator} needs at least one value")
        if self.operator in {"Exists", "DoesNotExist"} and self.values:
            raise ValueError(f"{self.operator} takes no values: remove them")
        return self


class LabelSelector(Part):
    """Selects objects whose labels meet every requirement; an empty selector selects all objects."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    match_labels: dict[str, LabelValue] = Field(default_factory=dict, max_length=64)
    """Labels that must have exactly these values."""
    match_expressions: list[SelectorRequirement] = Field(default_factory=list, max_length=32)
    """Further rules; all must hold."""


class Condition(Part):
    """One aspect of an object's state, as in every Kubernetes kind."""

    type: str = Field(max_length=316)
    """The aspect, in CamelCase."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: str = Field(max_length=1024)
    """Why, as one CamelCase word for programs."""
    message: str = Field(default="", max_length=32768)
    """Why, for people."""
    observed_generation: int | None = None
    """The metadata.generation that this was decided for."""
    last_transition_time: str = ""
    """When status last changed."""


CONDITIONS: dict[str, JsonValue] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


class CustomResource(Part):
    """A whole object of group fairlead.dev. Subclasses add kind, spec and status."""

    api_version: Literal["fairlead.dev/v1alpha1"] = names.API_VERSION
    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.metadata.get("name", ""))

    @property
    def namespace(self) -> str:
        return str(self.metadata.get("namespace", ""))

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Self:
        """An object that a user wrote. Raises ManifestError with object, field, value and next step."""
        return checked(cls, raw, subject=_subject(cls, raw))

    @classmethod
    def stored(cls, raw: Mapping[str, Any]) -> Self:
        """An object that the cluster holds: unknown fields and nulls are passed over. Raises ManifestError."""
        return checked(cls, raw, subject=_subject(cls, raw), strict=False)


M = TypeVar("M", bound=BaseModel)


def checked(cls: type[M], raw: object, *, subject: str, strict: bool = True) -> M:
    """`raw` as a cls. Raises ManifestError with one line per fault.

    Without `strict` unknown fields are passed over, and null is an absent field.
    """
    try:
        return cls.model_validate(raw if strict else without_nulls(raw), extra=None if strict else "ignore")
    except ValidationError as error:
        raise ManifestError(subject, tuple(_fault(cls, detail) for detail in error.errors(include_url=False))) from None


def _subject(cls: type[CustomResource], raw: object) -> str:
    metadata = raw.get("metadata") if isinstance(raw, Mapping) else None
    if not isinstance(metadata, Mapping):
        return cls.__name__
    where = "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
    return f"{cls.__name__} {where}" if where else cls.__name__


def _fault(cls: type[BaseModel], detail: ErrorDetails) -> str:
    """One of pydantic's errors as `spec.flavors[0].limit: what is wrong; what to do`."""
    path, value, context = _path(detail["loc"]), detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            known = _fields_at(cls, detail["loc"][:-1])
            close = difflib.get_close_matches(str(detail["loc"][-1]), known, n=1)
            text = f"unknown field; did you mean {close[0]}?" if close else "unknown field"
            if not close and known:
                text += f"; known here: {', '.join(known)}"
        case "missing":
            text = "is required"
        case "value_error":
            text = str(context["error"])
        case "literal_error" if path == "apiVersion":
            text = f"{_shown(value)} is unknown: write {context['expected']}, or use a fairlead that has that version"
        case "literal_error":
            text = f"{value!r} is none of {context['expected']}"
        case _:
            text = f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, not {_shown(value)}"
    return f"{path}: {text}" if path else text


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _fields_at(cls: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The field names (as users write them) of the model at location within cls."""
    current: type[BaseModel] | None = cls
    for part in location:
        if isinstance(part, int) or current is None:
            continue
        field = next((f for name, f in current.model_fields.items() if part in {name, f.alias}), None)
        current = None if field is None else model_in(field.annotation)
    return [] if current is None else [field.alias or name for name, field in current.model_fields.items()]


def model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := model_in(part)) is not None), None)
