"""The names in a recording, and their replacement by pseudonyms: one table for all, so that what refers to a name still does.

A pseudonym is the name's place in the order of all names and a keyed hash of it: orders that end in a name, and with them decisions,
stay as they are. Namespaces are ordered as they are in `namespace/name`. Numbers and truth values are no names: selectors compare them.
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256
from typing import Protocol

KEPT_DOMAINS = ("kubernetes.io", "k8s.io", "fairlead.dev", "nvidia.com")
WORDS = re.compile(r"[^\s,;\"'()\[\]]+")
LITERAL = re.compile(r"(\"|')((?:(?!\1)[^\\])*)\1")
PART = re.compile(r"[A-Za-z0-9]+(?:[._-]+[A-Za-z0-9]+)*")  # of a literal: what may be an object's name
_NO_NAME = re.compile(r"-?\d+|true|false|")


def public(key: str) -> bool:
    """Whether a label key or a resource is one that any cluster may have: unqualified, or of a known domain."""
    return of_known_domain(key) or not ("/" in key or "." in key)


def of_known_domain(key: str) -> bool:
    domain = key.partition("/")[0]
    return any(domain == each or domain.endswith(f".{each}") for each in KEPT_DOMAINS)


class Names(Protocol):
    """What a traversal of facts does with each name; returns what stands in its place."""

    def namespace(self, name: str) -> str: ...
    def name(self, name: str) -> str:
        """Each part between slashes for itself."""

    def place(self, name: str) -> str:
        """A name that devices' attributes and CEL may refer to: nodes, pools, UIDs."""

    def text(self, text: str) -> str:
        """Names among other words."""

    def literals(self, expression: str) -> str:
        """A CEL expression whose string literals may be names of places, or contain them."""

    def value(self, text: str) -> str:
        """A string of a device's attribute."""


class Collected:
    """Implements Names: keeps them, replaces nothing."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.namespaces: set[str] = set()
        self.places: set[str] = set()

    def namespace(self, name: str) -> str:
        self.namespaces.add(name)
        return self.name(name)

    def name(self, name: str) -> str:
        self.names.update(part for part in name.split("/") if not _NO_NAME.fullmatch(part))
        return name

    def place(self, name: str) -> str:
        self.places.update(part for part in name.split("/") if not _NO_NAME.fullmatch(part))
        return self.name(name)

    def text(self, text: str) -> str:
        return text

    def literals(self, expression: str) -> str:
        return expression

    def value(self, text: str) -> str:
        return text


class Pseudonyms:
    """Implements Names with those that were collected."""

    def __init__(self, collected: Collected, key: bytes) -> None:
        def order(name: str) -> str:
            return f"{name}/" if name in collected.namespaces else name

        self._places = collected.places
        self._of = {
            name: f"x{number:07d}-{hmac.new(key, name.encode(), sha256).hexdigest()[:8]}"
            for number, name in enumerate(sorted(collected.names, key=order))
        }

    def namespace(self, name: str) -> str:
        return self.name(name)

    def name(self, name: str) -> str:
        return "/".join(self._of.get(part, part) for part in name.split("/"))

    def place(self, name: str) -> str:
        return self.name(name)

    def text(self, text: str) -> str:
        return WORDS.sub(lambda found: self.name(found[0]), text)

    def literals(self, expression: str) -> str:
        return LITERAL.sub(lambda found: f"{found[1]}{self._literal(found[2])}{found[1]}", expression)

    def _literal(self, text: str) -> str:
        """A pattern such as `node-a|node-b` has several."""
        return self.value(text) if text in self._places else PART.sub(lambda found: self.value(found[0]), text)

    def value(self, text: str) -> str:
        return self._of[text] if text in self._places else text
