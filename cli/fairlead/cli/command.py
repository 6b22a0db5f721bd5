"""Commands from dataclasses: a flag is declared once, as a field, and read from that field.

    @dataclass(frozen=True, kw_only=True)
    class Gangs(OfCluster):
        \"\"\"List gangs: phase, queue, place in line.\"\"\"                        # the help
        namespace: Annotated[str | None, typer.Option("--namespace", "-n")] = None

        def run(self) -> int: ...                                                # the exit code; None is 0

A group is a table of command names, each with "MODULE:CLASS" of this package, or with a group of its own. A command's module is imported
when it is called; to list it, its docstring is looked up in the module's text. A field without `typer.Option` or `typer.Argument` has no flag; inherited fields come after a class's own.
A field `tuple[X, ...]` is a flag that may be repeated, and one with a `Form` is written as that form says. `progress: ClassVar[bool] = False`
is for a command that logs or draws by itself.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, Union, get_args, get_origin, get_type_hints

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

from fairlead.cli.printer import progress
from fairlead.kube.flags import Form

PACKAGE = "fairlead.cli"


class Runs(Protocol):
    """A dataclass that is a command."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def run(self) -> int | None:
        """The exit code. Raises typer.BadParameter for flags that do not go together."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Commands below one word. `unlisted`: what help does not show. `default` is what is called where the next word is none of them."""

    help: str
    commands: Mapping[str, str | Group]
    unlisted: frozenset[str] = frozenset()
    default: str = ""


Table = Mapping[str, tuple[str | None, str | Group]]
"""Name of a command → the panel of the help that shows it, and "MODULE:CLASS" or a group. A name of two words is a command of a group that
help shows in a panel of its own.
"""


class _Flag(NamedTuple):
    """A field as typer takes it, and how the field's value is made from what typer gives."""

    name: str
    annotation: Any
    default: Any
    value: Callable[[Any], Any]


def command(kind: type[Runs], name: str, *, panel: str | None = None) -> TyperCommand:
    """The command of this name that makes a `kind` of its flags, and runs it."""
    flags = list(_flags(kind))

    def call(**given: Any) -> None:
        made = kind(**{each.name: each.value(given[each.name]) for each in flags})
        with progress(name) if getattr(kind, "progress", True) else nullcontext():
            code = made.run() or 0
        sys.stdout.flush()  # where the pipe is closed this raises here, and not when the interpreter ends
        raise typer.Exit(code)

    place = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(n, place, default=default, annotation=type_) for n, type_, default, _ in flags]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {}
    call.__doc__ = kind.__doc__
    one = typer.Typer(add_completion=False)
    one.command(name, rich_help_panel=panel, cls=_Command)(call)
    made = typer.main.get_command(one)
    assert isinstance(made, TyperCommand)
    return made


def group(name: str, table: Group, *, panel: str | None = None) -> TyperGroup:
    """The group of this name."""
    below = {each: (None, given) for each, given in table.commands.items()}
    made = typer.main.get_group(
        typer.Typer(
            name=name,
            help=table.help,
            no_args_is_help=True,
            cls=group_class(below, table.unlisted, default=table.default),
            add_completion=False,
        )
    )
    made.rich_help_panel = panel
    return made


def group_class(table: Table, unlisted: frozenset[str] = frozenset(), *, default: str = "") -> type[TyperGroup]:
    """The class of one group, whose commands are those of the table."""
    return type("Group", (_Group,), {"table": table, "unlisted": unlisted, "default": default})


def help_of(place: str) -> str:
    """The docstring of "MODULE:CLASS", from the module's text: to import all of them would take half of what `fairlead --help` does."""
    module, _, kind = place.partition(":")
    source = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    found = re.search(rf'^class {kind}\b[^\n]*:\n    """(.*?)"""', source, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{place} has no docstring"
    return inspect.cleandoc(found[1])


class _Commands(Mapping[str, TyperCommand | TyperGroup]):
    """The commands of a group, each made when it is asked for."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._made: dict[str, TyperCommand | TyperGroup] = {}

    def __getitem__(self, name: str) -> TyperCommand | TyperGroup:
        if name not in self._made:
            panel, given = self._table[name]
            if isinstance(given, Group):
                self._made[name] = group(name, given, panel=panel)
            else:
                module, _, kind = given.partition(":")
                found = getattr(importlib.import_module(f"{PACKAGE}.{module}"), kind)
                self._made[name] = command(found, name, panel=panel)
        return self._made[name]

    def listed(self, name: str) -> TyperCommand | TyperGroup:
        """What help says of a command, which is not imported."""
        panel, given = self._table[name]
        return (
            self[name] if isinstance(given, Group) else TyperCommand(name, help=help_of(given), rich_help_panel=panel)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _only_given(super().get_params(ctx))


class _Group(TyperGroup):
    table: ClassVar[Table]
    unlisted: ClassVar[frozenset[str]]
    default: ClassVar[str]

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands(self.table)  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in self.table if name not in self.unlisted]

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        return [each for each in super().shell_complete(ctx, incomplete) if " " not in each.value]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        made: Any = self.commands
        self.commands = {name: made.listed(name) for name in self.list_commands(ctx)}
        try:
            super().format_help(ctx, formatter)
        finally:
            self.commands = made

    def get_params(self, ctx: Any) -> list[Any]:
        return _only_given(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = not self.default or not args or args[0] in self.commands or args[0] in ctx.help_option_names
        return super().parse_args(ctx, args if named else [self.default, *args])


def _only_given(params: list[Any]) -> list[Any]:
    """Typer converts every value by pydantic, whose import costs more than most commands: here only what was given and is no plain text."""
    for each in params:
        if "process_value" not in vars(each):
            each.process_value = partial(_processed, each, each.process_value)
    return params


def _processed(param: Any, process: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    source = ctx.get_parameter_source(param.name)
    if source is not None and source.name == "DEFAULT" and not param.required:
        return value
    plain = get_args(param.type_descriptor.annotation) or (param.type_descriptor.annotation,)
    return value if isinstance(value, str) and plain[0] is str and param.callback is None else process(ctx, value)


def _flags(kind: type[Runs]) -> Iterator[_Flag]:
    """Arguments in the order of the dataclass, then options, a class's own before inherited ones."""
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    own_first = dict.fromkeys(name for each in kind.__mro__ for name in vars(each).get("__annotations__", {}))
    for wanted, names in ((ArgumentInfo, fields), (OptionInfo, own_first)):
        for name in names:
            type_, *extras = get_args(hints[name]) or (None,)
            info = next((each for each in extras if isinstance(each, wanted)), None)
            form = next((each for each in extras if isinstance(each, Form)), None)
            if info is not None and name in fields:
                yield _flag(fields[name], type_, info, form)


def _flag(field: dataclasses.Field[Any], type_: Any, info: ParameterInfo, form: Form | None) -> _Flag:
    required = field.default is dataclasses.MISSING
    default: Any = inspect.Parameter.empty if required else field.default
    value: Callable[[Any], Any] = lambda given: given  # noqa: E731
    if form is not None:
        type_, value = str, partial(_read, form, _hint(field, info))
        default = default if required else form.write(default)
    elif get_origin(type_) is tuple:
        type_, value = list[get_args(type_)[0]], (lambda given: tuple(given or ()))  # type: ignore[misc]
        default = default if required else list(default) or None
    elif get_origin(type_) in {Union, types.UnionType}:
        several = [each for each in get_args(type_) if each is not type(None)]
        type_ = several[0] | None  # a user can write only the first kind of value
    return _Flag(field.name, Annotated[type_, info], default, value)


def _hint(field: dataclasses.Field[Any], info: ParameterInfo) -> str:
    """What a message calls the flag."""
    if isinstance(info, ArgumentInfo):
        return info.metavar or field.name.upper()
    names = [each for each in (info.default, *(info.param_decls or ())) if isinstance(each, str)]
    return names[0] if names else f"--{field.name.replace('_', '-')}"


def flag_name(kind: type[Any], name: str) -> str:
    """What a message calls the flag of a field of this dataclass."""
    info = next(
        each for each in get_args(get_type_hints(kind, include_extras=True)[name]) if isinstance(each, ParameterInfo)
    )
    return _hint(next(field for field in dataclasses.fields(kind) if field.name == name), info)


def _read(form: Form, hint: str, text: str) -> Any:
    try:
        return form.read(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None
