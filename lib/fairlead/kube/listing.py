"""Decoding of objects and of pages of lists, with one decoder per type. No I/O."""

import dataclasses
import functools
from typing import Any, Generic, TypeVar, cast

import msgspec

from fairlead.kube.nulls import Decoder
from fairlead.kube.objects import ListMeta

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listing(Generic[T]):
    """All objects of a resource as of `resource_version`, from which a watch continues."""

    items: list[T]
    resource_version: str


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list; Go encodes an empty list as null."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


@functools.cache
def _decoder(kind: Any) -> Decoder[Any]:
    return Decoder(kind)


def decoder(kind: type[T]) -> Decoder[T]:
    hashable: Any = kind
    return cast("Decoder[T]", _decoder(hashable))


def _page(kind: Any) -> Any:
    return Page[kind]


def decode(kind: type[T], body: bytes) -> Page[T]:
    page: Page[T] = _decoder(_page(kind)).decode(body)
    return page
