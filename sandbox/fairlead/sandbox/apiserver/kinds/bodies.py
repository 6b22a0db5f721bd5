"""Bodies that are not stored objects: evictions, bindings, scales, token requests, reviews.

No strategy decodes them; here a body of the wrong shape becomes a 400, too.
"""

from __future__ import annotations

from fairlead.sandbox.apiserver.kinds.decode import decode
from fairlead.sandbox.apiserver.kinds.request import DecodeError, Json
from fairlead.sandbox.apiserver.kinds.schema import schema_of

_MODELS = {"TokenRequest": "AuthenticationV1TokenRequest"}


def fit(obj: Json, kind: str) -> None:
    """Check the types and drop what is not in the kind, in place. Raises DecodeError."""
    model = _MODELS.get(kind, f"V1{kind}")
    try:
        schema_of(model)
    except KeyError:
        return
    meta = obj.get("metadata", {})
    if meta is None:
        del obj["metadata"]
    elif not isinstance(meta, dict):
        what = "array" if isinstance(meta, list) else "string" if isinstance(meta, str) else "number"
        raise DecodeError(f"json: cannot unmarshal {what} into Go struct field {kind}.metadata of type v1.ObjectMeta")
    decode(obj, model)
