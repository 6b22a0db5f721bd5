"""PUT namespaces/x/finalize, by the namespace controller when it is done; with the last finalizer the namespace is removed."""

from __future__ import annotations

import msgspec

from fairlead.sandbox.apiserver import meta, rendering, statuses
from fairlead.sandbox.apiserver.call import Call, check_write_options, options_of
from fairlead.sandbox.apiserver.jsonvalue import clone
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.storage.store import Stored
from fairlead.sandbox.apiserver.verbs.writing import decode, modify
from fairlead.sandbox.apiserver.wire.bodies import read_object
from fairlead.sandbox.apiserver.wire.exchange import Response
from fairlead.sandbox.apiserver.wire.negotiation import negotiate


async def finalize(call: Call) -> Response:
    """Write finalizers and metadata, and nothing else of the spec; metadata is written as by any update."""
    wanted = negotiate(call.request.accept)
    call.context.dry_run = check_write_options(call.request, "UpdateOptions")
    body = read_object(call.request, call.kind, call.state.registry)
    decode(call, body.value, body.duplicates)
    meta.match_url(call, body.value)
    metadata = body.value["metadata"]
    finalizers = (body.value.get("spec") or {}).get("finalizers") or []

    def transform(stored: Stored | None) -> Json:
        if stored is None:
            raise statuses.not_found(call.kind, call.target.name)
        new = {**clone(rendering.shown(call.kind, stored.obj)), "metadata": clone(metadata)}
        spec = new.setdefault("spec", {})
        spec.pop("finalizers", None)
        if finalizers:
            spec["finalizers"] = msgspec.json.decode(msgspec.json.encode(finalizers))
        return new

    stored, _ = await modify(call, transform, options_of(call, "UpdateOptions"))
    return rendering.one(call.kind, stored, wanted, call.state.now())
