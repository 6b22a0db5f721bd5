"""What Kubernetes takes as a name and as a label's key, and which namespaces Fairlead leaves alone. Apart from our kinds, whose models take a third of a second to import."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fairlead.api import names

DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_SUBDOMAIN = rf"{DNS_LABEL}(\.{DNS_LABEL})*"

_DNS_LABEL = re.compile(DNS_LABEL)
_DNS_SUBDOMAIN = re.compile(DNS_SUBDOMAIN)
_ATTRIBUTE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_LABEL_KEY_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def is_dns_subdomain(text: str) -> bool:
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


def is_dns_label(text: str) -> bool:
    return len(text) <= 63 and _DNS_LABEL.fullmatch(text) is not None


def is_attribute_name(text: str) -> bool:
    """Whether text may be the qualified name of a device's attribute: a domain, a slash, a C identifier (resource/v1)."""
    domain, _, name = text.rpartition("/")
    return len(domain) <= 63 and is_dns_subdomain(domain) and _ATTRIBUTE.fullmatch(name) is not None


def is_label_key(text: str) -> bool:
    """Whether text may be a label's or annotation's key: an optional DNS prefix, a slash, a name."""
    prefix, slash, name = text.rpartition("/")
    return (not slash or is_dns_subdomain(prefix)) and _LABEL_KEY_NAME.fullmatch(name) is not None


def is_exempt(namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether pods of the namespace are neither reviewed by the webhook nor taken by a queue's namespaceSelector."""
    return namespace in names.EXEMPT_NAMESPACES or names.IGNORE_LABEL in labels
