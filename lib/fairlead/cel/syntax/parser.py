"""Tokens to a tree: an operator-precedence (Pratt) parser written by hand.

CEL's grammar has eight precedence levels and fits one loop. Rejected: cel-python's lark grammar, which cannot read `.?`, `[?]`
or comments at the end, is slower (half a millisecond a selector), shares one parser per process, and reports errors in lark's
terms. Macros are expanded as the calls are read, as in cel-go. A chain of `&&` or `||` becomes one call with many arguments,
so a long one does not nest.

Invariants: at most NESTING_MAX levels (cel-go's own bound), at most EXPRESSION_MAX code points.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fairlead.cel.errors import CompileError, Issue
from fairlead.cel.syntax import ast
from fairlead.cel.syntax.lexer import INT64_MAX, SyntaxIssue, Token, tokenize
from fairlead.cel.syntax.macros import Macro, Maker

NESTING_MAX: Final = 250
EXPRESSION_MAX: Final = 100_000

_BINARY: Final[dict[str, tuple[int, str]]] = {
    "||": (2, "_||_"),
    "&&": (3, "_&&_"),
    "<": (4, "_<_"), "<=": (4, "_<=_"), ">": (4, "_>_"), ">=": (4, "_>=_"),
    "==": (4, "_==_"), "!=": (4, "_!=_"), "in": (4, "@in"),
    "+": (5, "_+_"), "-": (5, "_-_"),
    "*": (6, "_*_"), "/": (6, "_/_"), "%": (6, "_%_"),
}  # fmt: skip
_TERNARY: Final = 1
_UNARY: Final = {"!": "!_", "-": "-_"}
_RESERVED: Final = frozenset([
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package",
    "namespace", "return", "var", "void", "while"
])  # fmt: skip
_WORDS: Final = frozenset({"in", "true", "false", "null"})
KEYWORDS: Final = _RESERVED | _WORDS
"""Every word that cannot be an identifier: the words of the grammar and the reserved ones."""


def parse(
    text: str,
    macros: Mapping[tuple[str, int, bool], Macro],
    *,
    optional_syntax: bool = True,
    quoted_fields: bool = False,
    tokens_max: int | None = None,
) -> tuple[ast.Node, int]:
    """The tree and the number of node ids used. Raises CompileError."""
    if len(text) > EXPRESSION_MAX:
        issue = Issue(f"expression code point size exceeds limit: size: {len(text)}, limit {EXPRESSION_MAX}", 0)
        raise CompileError(text[:200], (issue,))
    try:
        tokens = tokenize(text, most=tokens_max)
        parser = _Parser(tokens, macros, optional_syntax=optional_syntax, quoted_fields=quoted_fields)
        return parser.program(), parser.make.last_id
    except SyntaxIssue as error:
        raise CompileError(text, (error.issue,)) from None
    except RecursionError:
        raise CompileError(text, (_too_deep(0),)) from None


def _too_deep(pos: int) -> Issue:
    return Issue(f"expression recursion limit exceeded: {NESTING_MAX}", pos, "split it, or use cel.bind")


class _Parser:
    def __init__(
        self,
        tokens: list[Token],
        macros: Mapping[tuple[str, int, bool], Macro],
        *,
        optional_syntax: bool,
        quoted_fields: bool,
    ) -> None:
        self.tokens = tokens
        self.index = 0
        self.depth = 0
        self.macros = macros
        self.optional_syntax = optional_syntax
        self.quoted_fields = quoted_fields
        self.make = Maker()

    # Tokens

    def peek(self) -> Token:
        return self.tokens[self.index]

    def take(self) -> Token:
        token = self.tokens[self.index]
        self.index += 1
        return token

    def accept(self, kind: str) -> Token | None:
        if self.tokens[self.index].kind == kind:
            return self.take()
        return None

    def expect(self, kind: str, what: str) -> Token:
        token = self.tokens[self.index]
        if token.kind != kind:
            raise self.unexpected(token, what)
        return self.take()

    @staticmethod
    def unexpected(token: Token, what: str) -> SyntaxIssue:
        found = "the end" if token.kind == "end" else f"'{token.text}'"
        hints = {"and": "use &&", "or": "use ||", "not": "use !", "=": "use =="}
        return SyntaxIssue(
            Issue(f"Syntax error: unexpected {found}, expecting {what}", token.pos, hints.get(token.text))
        )

    # Expressions

    def program(self) -> ast.Node:
        node = self.expression(_TERNARY)
        if self.peek().kind != "end":
            raise self.unexpected(self.peek(), "an operator or the end")
        return node

    def expression(self, least: int) -> ast.Node:
        """The longest expression whose operators have at least the precedence `least`."""
        self.depth += 1
        if self.depth > NESTING_MAX:
            raise SyntaxIssue(_too_deep(self.peek().pos))
        node = self.prefix()
        chain = 0
        while True:
            token = self.peek()
            if token.kind == "?":
                if least > _TERNARY:
                    break
                node = self.conditional(node, self.take())
                continue
            operator = _BINARY.get(token.text if token.kind in {"name", token.text} else "")
            if operator is None or operator[0] < least:
                break
            self.take()
            chain += 1
            if chain >= NESTING_MAX and operator[0] > 3:
                raise SyntaxIssue(_too_deep(token.pos))
            right = self.expression(operator[0] + 1)
            name = operator[1]
            if operator[0] <= 3 and isinstance(node, ast.Call) and node.function == name and chain > 1:
                node.args = (*node.args, right) if len(node.args) < NESTING_MAX else self.balance(node, right)
            else:
                node = self.make.call(token.pos, name, node, right)
        self.depth -= 1
        return node

    def balance(self, node: ast.Call, right: ast.Node) -> tuple[ast.Node, ...]:
        """A chain of thousands: fold what is there into one argument, so that adding stays linear."""
        folded = self.make.call(node.pos, node.function, *node.args)
        return (folded, right)

    def conditional(self, condition: ast.Node, token: Token) -> ast.Node:
        then = self.expression(_TERNARY + 1)
        self.expect(":", "':' of the conditional")
        return self.make.call(token.pos, "_?_:_", condition, then, self.expression(_TERNARY))

    def prefix(self) -> ast.Node:
        """Unary operators; an even number of equal ones cancels out, as in cel-go."""
        token = self.peek()
        if token.kind not in _UNARY:
            return self.postfix(self.primary())
        kind, count = token.kind, 0
        while self.peek().kind == kind:
            self.take()
            count += 1
        number = self.peek()
        if kind == "-" and count == 1 and number.kind in {"int", "float"}:
            self.take()
            return self.postfix(self.make.literal(token.pos, -number.value))  # type: ignore[operator]
        if self.peek().kind in _UNARY:  # `!-x`: not in the grammar
            raise self.unexpected(self.peek(), "a value")
        operand = self.postfix(self.primary())
        return operand if count % 2 == 0 else self.make.call(token.pos, _UNARY[kind], operand)

    def postfix(self, node: ast.Node) -> ast.Node:
        """Selections, calls and indices after a value."""
        links = 0
        while True:
            token = self.peek()
            if token.kind == ".":
                node = self.member(node, self.take())
            elif token.kind == "[":
                node = self.index_of(node, self.take())
            else:
                return node
            links += 1
            if links >= NESTING_MAX:
                raise SyntaxIssue(_too_deep(token.pos))

    def member(self, node: ast.Node, dot: Token) -> ast.Node:
        optional = self.accept("?")
        if optional is not None:
            self.require_optional(optional)
        name = self.peek()
        if name.kind == "quoted" and self.quoted_fields:
            self.take()
            field = name.text[1:-1]
        elif name.kind == "name" and name.text not in _WORDS:
            self.take()
            field = name.text
            bracket = self.accept("(") if optional is None else None
            if bracket is not None:
                return self.call(bracket, field, node)
        else:
            raise self.unexpected(name, "a field or method name")
        if optional is not None:
            return self.make.call(dot.pos, "_?._", node, self.make.literal(name.pos, field))
        return self.make.select(dot.pos, node, field)

    def index_of(self, node: ast.Node, bracket: Token) -> ast.Node:
        optional = self.accept("?")
        if optional is not None:
            self.require_optional(optional)
        key = self.expression(_TERNARY)
        self.expect("]", "']'")
        return self.make.call(bracket.pos, "_[?_]" if optional else "_[_]", node, key)

    def require_optional(self, token: Token) -> None:
        if not self.optional_syntax:
            raise SyntaxIssue(Issue("unsupported syntax '?'", token.pos))

    def call(self, bracket: Token, name: str, target: ast.Node | None) -> ast.Node:
        """`bracket` is consumed. A macro of that name and arity replaces the call."""
        args = self.sequence(")")
        macro = self.macros.get((name, len(args), target is not None))
        if macro is not None:
            expanded = macro(self.make, bracket.pos, target, args)
            if expanded is not None:
                return expanded
        return self.make.call(bracket.pos, name, *args, target=target)

    def sequence(self, closing: str) -> tuple[ast.Node, ...]:
        items: list[ast.Node] = []
        if self.accept(closing):
            return ()
        while True:
            items.append(self.expression(_TERNARY))
            if self.accept(closing):
                return tuple(items)
            self.expect(",", f"',' or '{closing}'")

    # Primaries

    def primary(self) -> ast.Node:
        token = self.take()
        if token.kind in {"int", "uint", "float", "string", "bytes"}:
            if token.kind == "int" and token.value == INT64_MAX + 1:
                raise SyntaxIssue(Issue("invalid int literal", token.pos, "it does not fit 64 bits"))
            return self.make.literal(token.pos, token.value)
        if token.kind == "(":
            node = self.expression(_TERNARY)
            self.expect(")", "')'")
            return node
        if token.kind == "[":
            return self.list_literal(token)
        if token.kind == "{":
            return self.map_literal(token)
        if token.kind == "name":
            if token.text in {"true", "false"}:
                return self.make.literal(token.pos, token.text == "true")
            if token.text == "null":
                return self.make.literal(token.pos, None)
            return self.identifier(token, "")
        if token.kind == "." and self.peek().kind == "name":
            return self.identifier(self.take(), ".")
        raise self.unexpected(token, "a value")

    def identifier(self, token: Token, lead: str) -> ast.Node:
        name = token.text
        if name in _WORDS:
            raise self.unexpected(token, "a value")
        if name in _RESERVED:
            raise SyntaxIssue(Issue(f"reserved identifier: {name}", token.pos))
        bracket = self.accept("(")
        if bracket is not None:
            return self.call(bracket, lead + name, None)
        if (struct := self.struct_name(name)) is not None:
            return self.struct_literal(token, lead + struct)
        return self.make.ident(token.pos, lead + name)

    def struct_name(self, name: str) -> str | None:
        """The dotted name, consumed, when a `{` follows it; else None and nothing is consumed."""
        ahead = self.index
        parts = [name]
        while self.tokens[ahead].kind == "." and self.tokens[ahead + 1].kind == "name":
            parts.append(self.tokens[ahead + 1].text)
            ahead += 2
        if self.tokens[ahead].kind != "{":
            return None
        self.index = ahead
        return ".".join(parts)

    def list_literal(self, token: Token) -> ast.Node:
        elements: list[ast.Node] = []
        optional: set[int] = set()
        while not self.accept("]"):
            if mark := self.accept("?"):
                self.require_optional(mark)
                optional.add(len(elements))
            elements.append(self.expression(_TERNARY))
            if not self.accept(","):
                self.expect("]", "',' or ']'")
                break
        return self.make.list_(token.pos, tuple(elements), frozenset(optional))

    def map_literal(self, token: Token) -> ast.Node:
        entries: list[ast.Entry] = []
        while not self.accept("}"):
            mark = self.accept("?")
            if mark:
                self.require_optional(mark)
            key = self.expression(_TERNARY)
            self.expect(":", "':' after the key")
            entries.append(ast.Entry(key, self.expression(_TERNARY), mark is not None))
            if not self.accept(","):
                self.expect("}", "',' or '}'")
                break
        return self.make.map_(token.pos, tuple(entries))

    def struct_literal(self, token: Token, name: str) -> ast.Node:
        self.expect("{", "'{'")
        fields: list[tuple[str, ast.Node, bool]] = []
        while not self.accept("}"):
            mark = self.accept("?")
            field = self.take()
            if field.kind not in {"name", "quoted"} or field.text in _WORDS:
                raise self.unexpected(field, "a field name")
            self.expect(":", "':' after the field")
            fields.append((field.text.strip("`"), self.expression(_TERNARY), mark is not None))
            if not self.accept(","):
                self.expect("}", "',' or '}'")
                break
        return self.make.struct(token.pos, name, tuple(fields))
