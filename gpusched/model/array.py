"""An array: one submission for many members, which differ in the values of its parameters."""

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from gpusched.model.job import Submission

__all__ = [
    "MOST_MEMBERS",
    "Array",
    "AtMost",
    "MemberResult",
    "Numbers",
    "array_of",
    "filled_in",
    "member_id",
    "member_submission",
    "members_meant",
    "number_of_member",
    "parameters",
]

MOST_MEMBERS: Final = 1_000_000
INDEX: Final = "index"
"""What a member's number is called in a command: `{index}`."""

_MEMBER: Final = re.compile(r"(?P<array>.+)\[(?P<number>\d{1,7})\]")
_SEVERAL: Final = re.compile(r"(?P<array>.+)\[(?:(?P<first>\d{0,7})(?P<to>-)?(?P<last>\d{0,7}))\]")
_IN_BRACES: Final = re.compile(r"\{([A-Za-z_][\w.-]*)\}")

Text = Annotated[str, msgspec.Meta(max_length=4096)]
Number = Annotated[int, msgspec.Meta(ge=-(10**15), le=10**15)]


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """The whole numbers from `first` to `last`, as values of a parameter."""

    first: Number
    last: Number


AtMost = Annotated[int, msgspec.Meta(ge=1, le=MOST_MEMBERS)]
Values = Numbers | tuple[Text, ...]


class Array(msgspec.Struct, frozen=True, kw_only=True):
    """`count` members, numbered from `first` on; `at_most` of them live at the same time (None: all that fit).

    `open`: more members may come, so that it has not ended when all that there are have.

    `names` are those of the parameters. Either `values` has the values of each, and every combination is a member, the
    last parameter changing fastest; or `rows` has the values of each member. Those of a workload's options are JSON.
    """

    count: Annotated[int, msgspec.Meta(ge=0, le=MOST_MEMBERS)]
    first: Annotated[int, msgspec.Meta(ge=0, le=MOST_MEMBERS)] = 0
    at_most: AtMost | None = None
    names: Annotated[tuple[Text, ...], msgspec.Meta(max_length=100)] = ()
    values: Annotated[tuple[Values, ...], msgspec.Meta(max_length=100)] = ()
    rows: Annotated[tuple[tuple[Text, ...], ...], msgspec.Meta(max_length=MOST_MEMBERS)] = ()
    open: bool = False

    @property
    def numbers(self) -> range:
        """The numbers of all members."""
        return range(self.first, self.first + self.count)

    @property
    def fits(self) -> bool:
        """Whether names, values, rows and count go together."""
        if self.open:
            return not self.names and not self.values and not self.rows
        if not self.count:
            return False
        if self.rows:
            return not self.values and len(self.rows) == self.count and {len(row) for row in self.rows} == {self.width}
        if len(self.values) != self.width or any(_size(one) < 1 for one in self.values):
            return False
        return not self.names or math.prod(map(_size, self.values)) == self.count

    @property
    def width(self) -> int:
        """How many parameters it has."""
        return len(self.names)


class MemberResult(NamedTuple):
    """One member. `report`: all numbers of its last report; `seconds`: how long it ran, None before its end."""

    id: str
    number: int
    parameters: Mapping[str, str]
    state: str
    seconds: float | None
    score: float | None
    report: Mapping[str, float]
    message: str | None


def parameters(array: Array, number: int) -> dict[str, str]:
    """Return the values of a member's parameters, by their names."""
    place = number - array.first
    if array.rows:
        return dict(zip(array.names, array.rows[place], strict=True))
    found = []
    for values in reversed(array.values):
        place, at = divmod(place, _size(values))
        found.append(str(values.first + at) if isinstance(values, Numbers) else values[at])
    return dict(zip(array.names, reversed(found), strict=True))


def member_id(array_id: str, number: int) -> str:
    """Return the id of a member: `train-7[3]`."""
    return f"{array_id}[{number}]"


def array_of(job_id: str) -> str | None:
    """Return the id of the array that a job's id names a member of; None for any other id."""
    found = _MEMBER.fullmatch(job_id)
    return found["array"] if found else None


def members_meant(name: str) -> tuple[str, range] | None:
    """Return an array, and which of its members a name means; None for a name that means none.

    One is `train-7[3]`, several `train-7[3-9]` or `train-7[3-]`, all `train-7[]`.
    """
    found = _SEVERAL.fullmatch(name)
    if found is None:
        return None
    first = int(found["first"] or 0)
    last = int(found["last"] or MOST_MEMBERS) if found["to"] or not found["first"] else first
    return found["array"], range(first, last + 1)


def number_of_member(job_id: str) -> int:
    """Return the number of a member, by its id; 0 for another job."""
    found = _MEMBER.fullmatch(job_id)
    return int(found["number"]) if found else 0


def filled_in(word: str, values: Mapping[str, str]) -> str:
    """Return a word of a command with the values of parameters in the place of their names, `{lr}`; others stay."""
    return _IN_BRACES.sub(lambda found: values.get(found[1], found[0]), word)


def member_submission(asked: "Submission", array: Array, number: int) -> "Submission":
    """Return what one member of an array is submitted as: a job that follows no other, and has no name."""
    values = parameters(array, number)
    alone = replace(
        asked,
        array=None,
        index=number,
        parameters=values,
        after=(),
        after_any=(),
        at=None,
        hold=False,
        name=None,
        token="",
    )
    if asked.command is None:
        chosen = {name: msgspec.json.decode(value) for name, value in values.items()}
        shown = {name: value if isinstance(value, str) else values[name] for name, value in chosen.items()}
        options = msgspec.json.encode(msgspec.json.decode(asked.options) | chosen)
        return replace(alone, options=options, parameters=shown)
    (role,) = asked.workload.roles
    texts = values | {INDEX: str(number)}
    role = replace(role, command=tuple(filled_in(word, texts) for word in role.command))
    return replace(alone, workload=replace(asked.workload, roles=(role,)))


def _size(values: Values) -> int:
    return values.last - values.first + 1 if isinstance(values, Numbers) else len(values)
