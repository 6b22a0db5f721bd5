"""Injected faults: the next requests that match fail, wait, or lose their watch.

For tests of clients against 409, 429, 500 and broken watches from a server that is otherwise correct.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.call import Target
from fairlead.sandbox.apiserver.kinds.request import UserInfo


@dataclass
class Fault:
    """One rule. Empty fields match everything; `count` None means until removed."""

    verb: str = ""
    resource: str = ""
    subresource: str | None = None  # None = any, "" = none
    name: str = ""
    user: str = ""
    count: int | None = 1
    code: int = 0  # answer this instead of doing it
    reason: str = ""
    message: str = "injected by the test"
    retry_after_s: int = 0
    delay_s: float = 0.0
    after: bool = False  # do it, then answer `code`: the client cannot find out
    drop: bool = False  # close the connection without an answer
    hits: int = field(default=0, init=False)

    def matches(self, target: Target, user: UserInfo) -> bool:
        return (
            self.count != 0
            and self.verb in {"", target.verb}
            and self.resource in {"", target.resource}
            and (self.subresource is None or self.subresource == target.subresource)
            and self.name in {"", target.name}
            and self.user in {"", user.name}
        )


_REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Faults:
    """The rules in force, first match first."""

    def __init__(self, close_watches: Callable[[str], int]) -> None:
        self._rules: list[Fault] = []
        self._close_watches = close_watches

    def add(self, fault: Fault) -> Fault:
        self._rules.append(fault)
        return fault

    def fail(self, code: int, *, verb: str = "", resource: str = "", count: int | None = 1, **more: object) -> Fault:
        """Answer `code` to the next `count` matching requests."""
        return self.add(Fault(verb=verb, resource=resource, count=count, code=code, **more))  # type: ignore[arg-type]

    def delay(self, delay_s: float, *, verb: str = "", resource: str = "", count: int | None = 1) -> Fault:
        return self.add(Fault(verb=verb, resource=resource, count=count, delay_s=delay_s))

    def close_watches(self, resource: str = "") -> int:
        """End open watches (of a resource) now; returns how many."""
        return self._close_watches(resource)

    def remove(self, fault: Fault) -> None:
        if fault in self._rules:
            self._rules.remove(fault)

    def clear(self) -> None:
        self._rules.clear()

    async def matching(self, target: Target, user: UserInfo) -> Fault | None:
        """The first rule that matches this request; returns after its delay."""
        fault = next((rule for rule in self._rules if rule.matches(target, user)), None)
        if fault is None:
            return None
        fault.hits += 1
        if fault.count is not None:
            fault.count -= 1
            if fault.count == 0:
                self._rules.remove(fault)
        if fault.delay_s:
            await asyncio.sleep(fault.delay_s)
        return fault


def error_of(fault: Fault) -> statuses.ApiError:
    reason = fault.reason or _REASONS.get(fault.code, "")
    details = {"retryAfterSeconds": fault.retry_after_s} if fault.retry_after_s else {}
    headers = {"Retry-After": str(fault.retry_after_s)} if fault.retry_after_s else {}
    return statuses.ApiError(fault.code, reason, fault.message, details, headers=headers)
