"""Commands that are one request each: parameters, texts and columns are the request's own.

A field that a request needs is an argument, one that it may have an option, `vhost` an option in
either case where the request names something in it. Texts are those of the request's docstring.
"""

from __future__ import annotations

import inspect
import json as json_codec
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_type_hints

import typer
from msgspec.inspect import BoolType, DictType, IntType

from warren.calls import AdminCalls
from warren.cli import output
from warren.cli.target import Json, Uri, complete_queue, connect
from warren.errors import UsageError
from warren_wire.admin.requests import (
    AnyAdminRequest,
    answer_type,
    columns_of,
    fields_in,
    summary_of,
    texts_of,
)

Kind = type[AnyAdminRequest]
Parameter = tuple[Any, Any]
"""Of a command: annotation with what typer is to know, and default; inspect's `empty`: none."""
NEEDED: Any = inspect.Parameter.empty
VHOST = Annotated[str, typer.Option("--vhost", "-p", help="the vhost")]
MAYBE_VHOST = Annotated[str | None, typer.Option("--vhost", "-p", help="of that vhost only")]
_COMPLETED = {"queue": complete_queue}


def parameters_of(kind: Kind, fixed: Mapping[str, Any]) -> dict[str, Parameter]:
    """Return the parameters that a command has for the fields of its request, by key.

    fixed  fields that the command says itself
    """
    texts = texts_of(kind)
    fields = {key: one for key, one in fields_in(kind).items() if one.name not in fixed}
    names = [key for key, field in fields.items() if field.required]
    found: dict[str, Parameter] = {}
    for key, field in fields.items():
        is_number, is_flag = isinstance(field.wanted, IntType), isinstance(field.wanted, BoolType)
        taken: Any = bool if is_flag else int if is_number else str
        text = texts.get(key) or f"the {key}'s name"
        if key == "vhost" and names != ["vhost"]:
            found[key] = (VHOST, "/") if field.required else (MAYBE_VHOST, field.default)
        elif field.required:
            argument = typer.Argument(help=text, autocompletion=_COMPLETED.get(key))
            found[key] = Annotated[taken, argument], NEEDED
        else:
            word, said = key.replace("_", "-"), texts.get(key)
            if isinstance(field.wanted, DictType):
                found[key] = json_option(f"--{word}", key, said or "a JSON object")
                continue
            named = f"--{word}/--no-{word}" if field.default is True else f"--{word}"
            taken = taken | None if field.default is None else taken
            found[key] = Annotated[taken, typer.Option(named, help=said)], field.default
    return found


class RequestGroup(typer.Typer):
    """A group of commands of which most are one request each."""

    def does(
        self,
        name: str,
        kind: Kind,
        said: str | Callable[..., str],
        *,
        text: str = "",
        takes: Mapping[str, Parameter] | None = None,
        **fixed: Any,
    ) -> None:
        """Add the command that makes a request, and says what was done.

        said   with keys of the parameters in braces, `answer`, and `node`, which has answered; or
               what is called with them
        text   what the command does; "": as the request's docstring says
        takes  parameters that are not as their fields say
        fixed  fields of the request that the command says
        """

        def show(answer: Any, node: str, json: bool, given: dict[str, Any]) -> None:
            words = said.format if isinstance(said, str) else said
            output.say(words(**{"answer": answer, "node": node, **given}))

        self._add(name, kind, text, {**parameters_of(kind, fixed), **(takes or {})}, fixed, show)

    def shows(
        self,
        name: str,
        kind: Kind,
        shown: Callable[[Any], None],
        *,
        text: str = "",
        part: str = "",
        options: tuple[str, ...] = (),
        takes: Mapping[str, Parameter] | None = None,
        **fixed: Any,
    ) -> None:
        """Add the command that prints what a request is answered: as JSON, or as `shown` does.

        part     field of the answer that is printed; "": all of it
        options  fields of the request that the command has, beside those that are needed
        """

        def show(answer: Any, node: str, json: bool, given: dict[str, Any]) -> None:
            output.one(getattr(answer, part) if part else answer, json, shown)

        of_request = {
            key: one
            for key, one in parameters_of(kind, fixed).items()
            if one[1] is NEEDED or key in options
        }
        self._add(
            name, kind, text, {**of_request, **(takes or {}), "json": (Json, False)}, fixed, show
        )

    def lists(
        self,
        name: str,
        kind: Kind,
        *,
        columns: Mapping[str, output.Column] | None = None,
        part: str = "",
        **others: Any,
    ) -> None:
        """Add the command that prints what a request lists, a column for each field that is one.

        columns  those that stand first, by title, see `output.listing`
        part     field of the answer that is the list; "": all of it
        others   see `shows`
        """
        listed = get_type_hints(answer_type(kind))[part] if part else answer_type(kind)
        every = every_column(get_args(listed)[0], columns or {})
        self.shows(
            name, kind, lambda found: output.listing(found, False, every), part=part, **others
        )

    def _add(
        self,
        name: str,
        kind: Kind,
        text: str,
        parameters: Mapping[str, Parameter],
        fixed: Mapping[str, Any],
        show: Callable[[Any, str, bool, dict[str, Any]], None],
    ) -> None:
        """Register a command; typer reads its parameters from a signature.

        show  gets the answer, host and port that gave it, whether JSON is wanted, parameters by key
        """
        fields = {key.replace("-", "_"): (key, one.name) for key, one in fields_in(kind).items()}

        def called(uri: str | None, json: bool = False, **given: Any) -> None:
            request = kind(**{fields[one][1]: value for one, value in given.items()}, **fixed)
            with connect(uri) as connection:
                answer = AdminCalls(connection).ask(request)
                node = "{}:{}".format(*connection.node or ("", 0))
            show(answer, node, json, {fields[one][0]: value for one, value in given.items()})

        every = {**parameters, "uri": (Uri, None)}
        if "json" in every:
            every["json"] = every.pop("json")  # behind --uri
        made = [
            inspect.Parameter(
                key.replace("-", "_"),
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=annotation,
            )
            for key, (annotation, default) in every.items()
        ]
        called.__annotations__ = {one.name: one.annotation for one in made}
        vars(called)["__signature__"] = inspect.Signature(made)
        self.command(name, help=text or summary_of(kind))(called)


def every_column(kind: Any, first: Mapping[str, output.Column]) -> Mapping[str, output.Column]:
    """Return these columns, then the fields that their struct marks as columns.

    Where it marks none and no column is made of several fields, all are.
    """
    marked = columns_of(kind)
    if not marked and not any(map(callable, first.values())):
        marked = list(kind.__struct_fields__)
    return {**first, **{field: field for field in marked if field not in first.values()}}


def in_json(field: str) -> output.Column:
    """Return the column that shows a field as JSON."""
    return lambda one: json_codec.dumps(getattr(one, field), ensure_ascii=False)


def json_argument(what: str, text: str, *, of_object: bool = False) -> Parameter:
    """Return the parameter that is a JSON document; UsageError.

    what  it is, for texts of errors
    """
    parsed = _json_parser(what, of_object)
    return Annotated[str, typer.Argument(help=text, parser=parsed)], NEEDED


def json_option(named: str, what: str, text: str) -> Parameter:
    """Return the option that is a JSON object; UsageError. See `json_argument`."""
    parsed = _json_parser(what, of_object=True)
    return Annotated[Any, typer.Option(named, help=text, parser=parsed)], "{}"


def _json_parser(what: str, of_object: bool) -> Callable[[Any], Any]:
    def parsed(given: Any) -> Any:
        try:
            value = json_codec.loads(given)
        except ValueError as error:
            raise UsageError(f"the {what} is not JSON: {error}; got {given!r}") from error
        if of_object and not isinstance(value, dict):
            raise UsageError(f"the {what} must be a JSON object, as {{…}}; got {given!r}")
        return value

    return parsed
