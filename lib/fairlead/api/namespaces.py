"""Which namespaces Fairlead leaves alone."""

from collections.abc import Mapping

from fairlead.api import names


def is_exempt(namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether pods of the namespace are neither reviewed by the webhook nor taken by a queue's namespaceSelector."""
    return namespace in names.EXEMPT_NAMESPACES or names.IGNORE_LABEL in labels
