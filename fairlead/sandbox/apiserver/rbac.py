"""May they? RBAC evaluated from the stored roles and bindings."""

from __future__ import annotations

from fairlead.sandbox.apiserver.kinds.base import Access, UserInfo
from fairlead.sandbox.apiserver.state import State


class Rbac:
    def __init__(self, state: State) -> None:
        self._state = state

    def allows(self, user: UserInfo, access: Access) -> bool:
        return True  # filled in next
