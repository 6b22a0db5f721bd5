"""Kubernetes' two forms of time, Time (seconds) and MicroTime, to and from epoch seconds. Reads no clock."""

from datetime import UTC, datetime


def seconds(epoch_s: float) -> str:
    """metav1.Time: `2026-11-21T01:50:31Z`."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro(epoch_s: float) -> str:
    """metav1.MicroTime: `2026-11-21T01:50:31.123456Z`."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> float:
    """Epoch seconds of either form, or of any RFC 3339 time. Raises ValueError."""
    return datetime.fromisoformat(text).timestamp()
