"""What one option of `format("warren")` is: a field of a dataclass, with its specification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple, TypeAlias

from pyspark_warren.option_values import Kind, plain

AUTO: Final = "auto"
WARREN: Final = "warren"
AMQP: Final = "amqp"
"""The values of option broker."""
EITHER: Final = "either"
READ: Final = "read"
WRITE: Final = "write"
BOTH: Final = "both"
AS_BATCH: Final = "batch"
AS_STREAM: Final = "stream"
_SPEC: Final = "option"


class Rule(NamedTuple):
    """What must be true, or false, of the options where one option is given.

    test  of all options
    text  the rest of the error's text after the option's name, perhaps `=value` first; `{o.field}`
          is a value
    """

    test: Callable[[Any], object]
    text: str


@dataclass(frozen=True, slots=True)
class Spec:
    """One option.

    where     READ, WRITE or BOTH
    how       AS_BATCH or AS_STREAM: it is refused in the other one; BOTH
    broker    WARREN or AMQP: it is refused with a broker of the other kind; EITHER
    secret    no error shows its value
    requires  what must be true where it is given; of an option of AMQP, when the broker is known
    excludes  what must not be
    """

    name: str
    kind: Kind
    default: Any
    meaning: str
    where: str = BOTH
    how: str = BOTH
    broker: str = EITHER
    secret: bool = False
    requires: Sequence[Rule] = ()
    excludes: Sequence[Rule] = ()
    field: str = ""

    def broken(self, options: Any) -> str:
        """Return the text of a rule that is broken where the option is given; "": none is."""
        for rules, wanted in ((self.requires, True), (self.excludes, False)):
            for rule in rules:
                if bool(rule.test(options)) is not wanted:
                    text = rule.text.format(o=options)
                    return f"option {self.name}{'' if text[0] == '=' else ' '}{text}"
        return ""

    @property
    def default_text(self) -> str:
        """The default, for the manual."""
        return "" if self.default in (None, ()) else self.kind.shown(self.default)


MakeOption: TypeAlias = Callable[..., Any]


def options_of(where: str = BOTH, how: str = BOTH, broker: str = EITHER) -> MakeOption:
    """Return a maker of fields for options of that use."""

    def option(
        name: str,
        kind: Kind | Callable[[str], Any],
        default: Any,
        meaning: str,
        secret: bool = False,
        requires: Sequence[Rule] = (),
        excludes: Sequence[Rule] = (),
    ) -> Any:
        made = kind if isinstance(kind, Kind) else plain(kind)
        uses = where, how, broker
        spec = Spec(name, made, default, meaning, *uses, secret, requires, excludes)
        return field(default=default, repr=not secret, metadata={_SPEC: spec})

    return option


def specs_of(group: type) -> tuple[Spec, ...]:
    """Return the specifications of a group's own options, in their order."""
    own = group.__annotations__
    return tuple(
        replace(each.metadata[_SPEC], field=each.name)
        for each in fields(group)
        if each.name in own and _SPEC in each.metadata
    )


def secret_names(option: str) -> tuple[str, str, str]:
    """Return the names of the options that say a secret, of which at most one is given."""
    return option, f"{option}File", f"{option}Env"
