"""The command line of poprun, as words: where its options end, unique prefixes of names, switches without a value."""

import contextlib
from collections.abc import Collection, Sequence

import click

YES, NO = ("yes", "on", "1", "true"), ("no", "off", "0", "false")


class Switch(click.ParamType):
    """A switch that is given a word: yes or no, on or off, 1 or 0, true or false."""

    name = "yes|no"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        if isinstance(value, bool):
            return value
        text = str(value).lower()
        if text in YES or text in NO:
            return text in YES
        self.fail(f"Expected one of {', '.join((*YES, *NO))}. Received: {value!r}.", param, ctx)


def expanded(
    words: Sequence[str], valued: Collection[str], switches: Collection[str], flags: Collection[str]
) -> list[str]:
    """The words with whole names, every switch with a value, and `--` before the program.

    Args:
      words: as they were given.
      valued: options that take a value.
      switches: options that take yes or no, or nothing for yes.
      flags: options that take nothing.
    """
    made: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--" or not word.startswith("-") or word == "-":
            return [*made, "--", *([] if word == "--" else [word]), *left]
        name, equals, value = word.partition("=")
        name = _whole(name, [*valued, *switches, *flags])
        if name in switches and not equals:
            equals, value = "=", left.pop(0) if left and left[0].lower() in (*YES, *NO) else "yes"
        made.append(f"{name}{equals}{value}")
        if name in valued and not equals:
            # What follows is its value, however it is spelled.
            with contextlib.suppress(IndexError):
                made.append(left.pop(0))
    return made


def _whole(name: str, known: Collection[str]) -> str:
    if name in known or not name.startswith("--"):
        return name
    found = sorted(one for one in known if one.startswith(name))
    return found[0] if len(found) == 1 else name
