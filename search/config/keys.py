"""The keys of a file as its classes declare them: type, default, range, what each does, and an example.

Each field of a section is followed by a docstring. A sentence "Example: …" at its end gives an example where the
default shows none. Ranges and choices come from the types (:mod:`trainables.common.rules`).
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, is_dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticUndefined

from search.config.validation import fields_of
from search.config.yaml_file import yaml_text
from trainables.common.errors import InvalidInput, suggestion
from trainables.common.rules import OneOf, rules_of

SECTION = "section"
MAPPING = "keys and values"
ONE_OF = "one of"
ESSENTIAL = (
    "name", "dataset.name", "dataset.root", "model.backbone", "model.weights", "model.freeze", "model.embedding_dim",
    "training.epochs", "training.batch_size", "training.image_size", "training.lr", "losses", "space", "search.trials",
    "resources.gpus_per_trial",
)  # fmt: skip
"""The keys that most search files set."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of a file. ``default``, None if it is required, and ``example`` are YAML; a section has neither."""

    name: str
    type: str
    range: str
    default: str | None
    does: str
    example: str

    @property
    def value(self) -> str:
        return self.range if self.range.startswith(ONE_OF) else ", ".join(filter(None, (self.type, self.range)))

    @property
    def sentence(self) -> str:
        return re.split(r"(?<=\.) ", self.does, maxsplit=1)[0]

    @property
    def comment(self) -> str:
        """The first sentence of the description as a comment of YAML."""
        return "".join(f"# {line}\n" for line in textwrap.wrap(self.sentence, 110))

    @property
    def in_file(self) -> str:
        """The example as it stands in a file: ``training: {lr: 0.001}``."""
        *above, last = self.name.split(".")
        text = f"{last}: {self.example}"
        for section in reversed(above):
            text = f"{section}: {{{text}}}"
        return text


def keys_of(target: type, above: str = "") -> Iterator[Key]:
    """Yield the keys of the section or file ``target`` in its order, each section before its own keys."""
    described = _attribute_docstrings(target)
    for name, annotation in fields_of(target).items():
        path = f"{above}{name}"
        does, _, example = described.get(name, "").partition(" Example: ")
        if isinstance(annotation, type) and fields_of(annotation):
            yield Key(name=path, type=SECTION, range="", default="", does=does, example="")
            yield from keys_of(annotation, f"{path}.")
            continue
        default = _default(target, name)
        example = example.removesuffix(".") or default or ""
        form, values = _type(annotation), _range(annotation)
        yield Key(name=path, type=form, range=values, default=default, does=does, example=example)


def matching(keys: Iterable[Key], pattern: str) -> list[Key]:
    """Return the key named ``pattern``, or those it matches: a part of a name, or with ``*`` and ``?`` a whole one.

    ``space.mpa.scale`` also means ``space``. If no name matches, the keys whose descriptions have it.
    """
    listed = list(keys)
    wanted = pattern.lower() if {"*", "?"} & set(pattern) else f"*{pattern.lower()}*"
    for found in (
        [key for key in listed if key.name == pattern and key.type != SECTION],
        [key for key in listed if fnmatchcase(key.name, wanted)],
        [key for key in listed if key.type == MAPPING and pattern.startswith(f"{key.name}.")],
        [key for key in listed if fnmatchcase(f"{key.does} {key.value}".lower(), wanted)],
    ):
        if found:
            return found
    raise InvalidInput(
        f"No key matches {pattern!r}{suggestion(pattern, [key.name for key in listed])}; `holdout keys --all` has all."
    )


def commented(target: type, content: Mapping[str, Any]) -> str:
    """Return the YAML of ``content``, a file of the kind ``target``, with the first sentence on each key above it."""
    described = {key.name: key for key in keys_of(target)}

    def parts(content: Mapping[str, Any], above: str) -> Iterator[str]:
        for name, value in content.items():
            key = described.get(f"{above}{name}")
            yield key.comment if key else ""
            if key is not None and key.type == SECTION:
                yield f"{name}:\n"
                yield textwrap.indent("".join(parts(value, f"{above}{name}.")), "  ")
            else:
                yield yaml_text({name: value})
            yield "" if above else "\n"

    return "".join(parts(content, "")).removesuffix("\n")


def commented_out(target: type, name: str) -> str:
    """Return the key ``name`` of a file of the kind ``target``, or all of this section, as a comment with examples."""
    key, *within = [key for key in keys_of(target) if key.name.split(".")[0] == name]
    inner = ", ".join(f"{key.name.partition('.')[2]}: {key.example}" for key in within)
    return f"{key.comment}# {f'{name}: {{{inner}}}' if within else key.in_file}\n"


def _attribute_docstrings(target: type) -> dict[str, str]:
    classes = {node.name: node.body for node in _module(target.__module__).body if isinstance(node, ast.ClassDef)}
    found = {}
    for pair in pairwise(classes[target.__name__]):
        match pair:
            case (ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text)))):
                found[name] = " ".join(text.split())
    return found


@cache
def _module(name: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[name]))


def _default(target: type, field: str) -> str | None:
    """Return the default of a field as YAML; None if the key is required."""
    if issubclass(target, BaseModel):
        value = target.model_fields[field].get_default(call_default_factory=True)
    else:
        declared = target.__dataclass_fields__[field]  # type: ignore[attr-defined]
        value = declared.default if declared.default_factory is MISSING else declared.default_factory()
    if value is PydanticUndefined or value is MISSING:
        return None
    plain = TypeAdapter(Any).dump_python(asdict(value) if is_dataclass(value) else value, mode="json")  # type: ignore[arg-type]
    if isinstance(plain, float):
        return f"{plain:g}"
    return yaml.safe_dump(plain, default_flow_style=True, width=1000).removesuffix("...\n").strip()


_TYPES = {
    bool: "true or false", int: "whole number", float: "number", NoneType: "null", tuple: "list", dict: MAPPING,
}  # fmt: skip


def _type(annotation: Any) -> str:
    return " or ".join(dict.fromkeys(_TYPES.get(get_origin(part) or part, "text") for part in _flat(annotation)))


def _range(annotation: Any) -> str:
    """Return the range or the choices that a type declares in words."""
    rules = rules_of(annotation)
    names = [name for rule in rules if isinstance(rule, OneOf) for name in rule.choices]
    of = {part: get_origin(part) for part in _flat(annotation)}
    if Literal in of.values():
        names += [str(name) for part, kind in of.items() if kind is Literal for name in get_args(part)]
        names += [_type(part) for part, kind in of.items() if kind in (tuple, dict)]
    each = "each " if rules and tuple in of.values() else ""
    return f"{ONE_OF} {', '.join(names)}" if names else each + ", ".join(rule.text for rule in rules)


def _flat(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        yield from _flat(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from _flat(part)
    else:
        yield annotation
