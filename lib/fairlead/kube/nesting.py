"""JSON that is nested too deeply for the decoder, with its deepest values as null.

The apiserver stores what is nested up to 10,000 levels in fields without a type, such as the opaque parameters of a claim, and the
decoder ends at about 1,000. One such object must not keep whoever lists or watches its kind from all the others.
"""

import re

LEVELS_MAX = 200
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def cut(body: bytes, *, levels_max: int = LEVELS_MAX) -> bytes:
    """The same JSON with each list and object below `levels_max` levels as null. Linear in its length."""
    parts: list[bytes] = []
    level, kept = 0, 0
    for token in _TOKEN.finditer(body):
        first = token[0][:1]
        if first in (b"[", b"{"):
            level += 1
            if level == levels_max + 1:
                parts += [body[kept : token.start()], b"null"]
        elif first in (b"]", b"}"):
            if level == levels_max + 1:
                kept = token.end()
            level -= 1
    return b"".join((*parts, body[kept:]))
