"""`holdout check`: contract tests of a part."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from search.cli.options import Json
from search.cli.output import show
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    from rich.table import Table

    from spaces.contract.outcome import CheckOutcome


class Kind(StrEnum):
    """The kinds of parts."""

    LOSS = "loss"
    DATASET = "dataset"
    BACKBONE = "backbone"
    SAMPLER = "sampler"
    METRIC = "metric"


def check(
    part: Annotated[
        str,
        typer.Argument(metavar="PART", help="A name, or the import path of your own, such as mylab.losses:CircleLoss."),
    ],
    kind: Annotated[
        Kind | None, typer.Option("--kind", help="The kind of part, if it cannot be derived from its class.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="Set an option of a data set.")
    ] = None,
    image_size: Annotated[int, typer.Option("--image-size", help="The image size for testing a backbone.")] = 224,
    as_json: Json = False,
) -> None:
    """Test that a loss, data set, backbone, sampler or metric does what a search relies on; exit code 1 if not."""
    from dataclasses import asdict

    known = _known_kind(part, kind)
    outcomes = _outcomes(part, known, settings or [], image_size)
    ok = all(outcome.ok for outcome in outcomes)
    record = {"part": part, "kind": known.value, "ok": ok, "checks": [asdict(outcome) for outcome in outcomes]}
    show(record, as_json, lambda: _table(part, known, outcomes))
    if not ok:
        raise typer.Exit(1)


def _known_kind(part: str, kind: Kind | None) -> Kind:
    """Return the kind of a part: the given one, or the one derived from its name or class.

    Raises:
        Mistakes: the part does not exist, or is of another kind.
    """
    from spaces.contract import check_part
    from trainables.models.backbones import LIBRARIES
    from trainables.parts import is_own, load_part

    kinds = {
        check_part.LOSS: Kind.LOSS,
        check_part.DATASET: Kind.DATASET,
        check_part.BACKBONE: Kind.BACKBONE,
        check_part.BATCH_SAMPLER: Kind.SAMPLER,
        check_part.METRIC: Kind.METRIC,
    }
    if kind is not None and is_own(part) and part.partition(":")[0] not in LIBRARIES:
        load_part(part, kind=kind.value)
        return kind
    found = kinds[check_part.kind_of(part)]
    if kind not in (None, found):
        raise Mistakes(f"--kind is {kind}, but {part} is a {found.value}; leave it out.")
    return found


def _outcomes(part: str, kind: Kind, settings: list[str], image_size: int) -> "list[CheckOutcome]":
    from search.config.yaml_file import apply_settings
    from spaces.contract.check_data import check_batch_sampler, check_dataset
    from spaces.contract.check_loss import check_loss
    from spaces.contract.check_model import check_backbone, check_metric

    options = apply_settings({}, settings)
    if options and kind is not Kind.DATASET:
        raise Mistakes(f"--set sets an option of a data set, but {part} is a {kind.value}; leave it out.")
    checks = {
        Kind.LOSS: lambda: check_loss(part),
        Kind.DATASET: lambda: check_dataset(part, options),
        Kind.BACKBONE: lambda: check_backbone(part, image_size),
        Kind.SAMPLER: lambda: check_batch_sampler(part),
        Kind.METRIC: lambda: check_metric(part),
    }
    return list(checks[kind]())


def _table(part: str, kind: Kind, outcomes: "list[CheckOutcome]") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    failed = sum(not outcome.ok for outcome in outcomes)
    verdict = f"{failed} of {len(outcomes)} checks failed" if failed else f"all {len(outcomes)} checks passed"
    table = Table(title=f"{part}, a {kind.value}: {verdict}", title_justify="left", box=SIMPLE_HEAD, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for outcome in outcomes:
        state = Text("passed", style="green") if outcome.ok else Text("failed", style="red")
        table.add_row(state, Text.assemble(outcome.what, (f"\n{outcome.sentence}" if not outcome.ok else "", "bold")))
    return table
