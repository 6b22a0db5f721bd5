"""CustomResourceDefinition itself."""

from __future__ import annotations

from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn


class CrdStrategy(BuiltIn):
    model = "V1CustomResourceDefinition"
    generation = True
