"""Server-side apply's requests: what may be applied. (Filled in next.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.sandbox.apiserver.bodies import Body
from fairlead.sandbox.apiserver.call import Call
from fairlead.sandbox.apiserver.kinds.base import Json
from fairlead.sandbox.apiserver.writing import clone, decode


def check_config(call: Call, config: Any) -> None:
    config.setdefault("apiVersion", call.kind.api_version)


def decoder(call: Call, body: Body) -> Callable[[], Json]:
    def fresh() -> Json:
        obj = clone(body.value)
        decode(call, obj, body.duplicates)
        obj["metadata"].setdefault("name", call.target.name)
        return obj

    return fresh
