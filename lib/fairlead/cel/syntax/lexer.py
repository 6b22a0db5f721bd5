"""Text to tokens: CEL's literals, operators and comments.

One compiled pattern, linear in the input. Strings have eight forms with escapes of their own. The only errors are a
character that starts no token, a bad escape, and a number that does not fit its type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fairlead.cel.errors import Issue
from fairlead.cel.values import UInt

INT64_MAX: Final = 2**63 - 1
UINT64_MAX: Final = 2**64 - 1

# The literal contents of a string; single-quoted forms must not span lines.
_ESCAPE: Final = r"\\[abfnrtv\"'`\\?]|\\[0-3][0-7][0-7]|\\[xX][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}"
_PATTERN: Final = re.compile(
    rf"""
      (?P<space>[ \t\r\n\f]+|//[^\n]*)
    | (?P<float>(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?))
    | (?P<uint>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])
    | (?P<int>0x[0-9a-fA-F]+|[0-9]+)
    | (?P<raw>[bB]?[rR](?:\"\"\"(?s:.)*?\"\"\"|'''(?s:.)*?'''|"[^"\n\r]*"|'[^'\n\r]*'))
    | (?P<string>[bB]?(?:
          \"\"\"(?:{_ESCAPE}|(?!\"\"\")[^\\])*\"\"\"
        | '''(?:{_ESCAPE}|(?!''')[^\\])*'''
        | "(?:{_ESCAPE}|[^\\"\n\r])*"
        | '(?:{_ESCAPE}|[^\\'\n\r])*'))
    | (?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
    | (?P<quoted>`[a-zA-Z0-9_.\-/ ]+`)
    | (?P<op>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{{}}])
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPED: Final = re.compile(
    r"\\(?:([0-7]{3})|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # int, uint, float, string, bytes, name, quoted, end, or the operator itself
    text: str
    pos: int
    value: object = None


class SyntaxIssue(Exception):  # noqa: N818 - not an error to users; the parser turns it into a CompileError
    """Text that is no token, or tokens that are no expression."""

    def __init__(self, issue: Issue) -> None:
        self.issue = issue
        super().__init__(issue.message)


def tokenize(text: str, *, most: int | None = None) -> list[Token]:
    """All tokens, at most `most` of them, then one `end`. Raises SyntaxIssue."""
    tokens: list[Token] = []
    pos = 0
    while pos < len(text):
        match = _PATTERN.match(text, pos)
        if match is None:
            raise SyntaxIssue(_unreadable(text, pos))
        kind = match.lastgroup or ""
        if kind != "space":
            if len(tokens) == most:
                raise SyntaxIssue(Issue(f"too large: more than {most} tokens", pos, "ask for less in one expression"))
            tokens.append(_token(kind, match.group(), pos))
        pos = match.end()
    tokens.append(Token("end", "", len(text)))
    return tokens


def _unreadable(text: str, pos: int) -> Issue:
    character = text[pos]
    if character in "\"'" or (character in "rRbB" and text[pos + 1 : pos + 2] in {'"', "'", "r", "R"}):
        return Issue(
            "Syntax error: string is not closed, or holds a bad escape", pos, r"use r'…' where backslashes are meant"
        )
    hint = {"=": "use == to compare", "&": "use &&", "|": "use ||", "'": None}.get(character)
    return Issue(f"Syntax error: token recognition error at: {character!r}", pos, hint)


def _token(kind: str, text: str, pos: int) -> Token:
    if kind == "op":
        return Token(text, text, pos)
    if kind == "int":
        # A literal 2**63 is read here and refused by the parser, unless a minus precedes it.
        return Token("int", text, pos, _integer(text, pos, INT64_MAX + 1, "int"))
    if kind == "uint":
        return Token("uint", text, pos, UInt(_integer(text[:-1], pos, UINT64_MAX, "uint")))
    if kind == "float":
        if float(text) == float("inf"):
            raise SyntaxIssue(Issue("invalid double literal", pos, "it does not fit a double"))
        return Token("float", text, pos, float(text))
    if kind == "raw":
        return _string(text, pos, raw=True)
    if kind == "string":
        return _string(text, pos, raw=False)
    return Token(kind, text, pos)


def _integer(text: str, pos: int, limit: int, name: str) -> int:
    digits = text.removeprefix("0x")
    value = int(digits, 16 if digits is not text else 10) if len(digits) <= 40 else limit + 1
    if value > limit:
        raise SyntaxIssue(Issue(f"invalid {name} literal", pos, "it does not fit 64 bits"))
    return value


def _string(text: str, pos: int, *, raw: bool) -> Token:
    body = text
    as_bytes = body[0] in "bB"
    body = body[1:] if as_bytes else body
    body = body[1:] if raw else body
    body = body[3:-3] if body[:3] in {'"""', "'''"} and len(body) >= 6 else body[1:-1]
    if as_bytes:
        try:
            return Token("bytes", text, pos, body.encode() if raw else _unescape_bytes(body, pos))
        except UnicodeEncodeError as error:
            raise SyntaxIssue(Issue("Syntax error: a code point that UTF-8 cannot encode", pos)) from error
    return Token("string", text, pos, body if raw else _unescape(body, pos))


def _unescape(body: str, pos: int) -> str:
    if "\\" not in body:
        return body

    def replace(match: re.Match[str]) -> str:
        octal, hexa, short, long, simple = match.groups()
        if simple is not None:
            return _SIMPLE.get(simple, simple)
        code = int(octal, 8) if octal else int(hexa or short or long, 16)
        if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
            raise SyntaxIssue(Issue(f"Syntax error: invalid unicode code point {match.group()!r}", pos))
        return chr(code)

    return _ESCAPED.sub(replace, body)


def _unescape_bytes(body: str, pos: int) -> bytes:
    """The bytes of a literal: octal and hex escapes are bytes; those of code points are not allowed."""
    out = bytearray()
    last = 0
    for match in _ESCAPED.finditer(body):
        out += body[last : match.start()].encode()
        last = match.end()
        octal, hexa, short, long, simple = match.groups()
        if short or long:
            raise SyntaxIssue(Issue(f"Syntax error: {match.group()!r} is not allowed in bytes", pos))
        if simple is not None:
            out += _SIMPLE.get(simple, simple).encode()
        else:
            out.append(int(octal, 8) if octal else int(hexa, 16))
    out += body[last:].encode()
    return bytes(out)
