"""``summary.json``: its keys, which other programs rely on; incumbents, failed and missing seeds, and diagnostics."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial
from pydantic import ValidationError
from support.driving import drive, only, record, train
from support.kinds import Finished
from support.own_trainings import own_spec
from support.summaries import made_loss, made_row

from search.driver.choice import freeze
from search.driver.finish import write_summary
from search.driver.stages import confirm_stage, final_stage
from search.records.records import Records
from search.records.runs import RunFolder
from search.records.writable import WritableRecords
from search.results.comparison import Comparison, compare, summary_of
from search.results.rows import Result, Row, SeedOutcomes, SeedStatistics
from search.results.summarise import diagnose, edges, extreme_epochs, incumbents, nothing_learned, summarise
from search.results.summary import Finding, Incumbent, LossSummary, Summary
from search.show.comparison_tables import headline_tables, text_tables
from search.show.sections.answer import answer
from search.stages import Role
from search.study.trial_queue import TrialQueue
from search.trials import record_key, running_value, whole_training
from spaces.losses import SPACES
from spaces.space import Choice, Float, Int, Range, Space, Value
from trainables.training.spec import Failed
from trainables.training.training_config import TrainingConfig

STATISTICS = "mean std seeds values ci95"
SEEDS = "wanted complete failed missing"
PARAMS = "margin model.head"
TEST = dict.fromkeys(("recall_at_1", "map_at_r"), STATISTICS)
OF_ROW: dict[str, Any] = {
    **dict.fromkeys(("search", "loss", "role", "number", "search_value", "clipped", "distinct_proxies")),
    "confirmed": STATISTICS, "final": STATISTICS, "test": TEST, "confirmed_seeds": SEEDS, "final_seeds": SEEDS,
    "params": PARAMS,
}  # fmt: skip
BASELINE = {"validation": "recall_at_1 map_at_r", "confirmed": None, "test": TEST}
KEYS: dict[str, Any] = {
    **dict.fromkeys(("format", "name", "objective", "digest", "test_opened", "test_overlap")),
    "untrained": BASELINE,
    "whitened": BASELINE,
    "split": "digest train_classes validation_classes training_half test_classes folds halves merge label_noise marks",
    "recommended": "loss number basis",
    "losses": {
        "contrastive": {
            **dict.fromkeys(("epochs", "ended_early", "choice", "diagnostics")),
            "trials": "complete pruned failed",
            "default": OF_ROW,
            "tuned": OF_ROW,
            "best": {"params": PARAMS, "value": None, "number": None},
            "anytime": "epochs value trial",
        }
    },
    "time": "wall_s startup_s search_wall_s trial_work_s slots",
}
"""Every key of ``summary.json``."""


def keys(value: Any) -> Any:
    """Return the keys of a JSON value; of a list, those of its first entry."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return keys(value[0])
    return {key: keys(inner) for key, inner in value.items()} if value and isinstance(value, dict) else None


def spelt_out(table: Any) -> Any:
    """Return ``KEYS`` with its texts as mappings."""
    if isinstance(table, str):
        return dict.fromkeys(table.split())
    return {key: spelt_out(inner) for key, inner in table.items()} if table else None


def test_every_key_is_where_it_was(kinds: Callable[[str], Finished]) -> None:
    search = Records(RunFolder(kinds("features").runs, "small"))
    content = json.loads(search.folder.summary.read_text())
    assert keys(content) == spelt_out(KEYS)
    assert [*Finding.model_fields] == ["kind", "parameters", "sentence"]
    assert next(iter(content)) == "format"
    summary = Summary.load(search.folder.summary)
    assert content == summary.with_digest()
    assert summary_of(search) == summary == summarise(search)
    number = content["losses"]["contrastive"]["tuned"]["number"]
    assert {row.key[1:]: row.number for row in summary.rows} == {
        ("untrained", Role.BASELINE): None,
        ("whitened", Role.BASELINE): None,
        ("contrastive", Role.DEFAULT): 0,
        ("contrastive", Role.TUNED): number,
    }
    assert summary.test_opened == 1


def test_results_are_frozen_and_refuse_unknown_names() -> None:
    assert {Comparison, Summary, LossSummary, Row, SeedStatistics, Finding} < {*Result.__subclasses__()}
    for result in Result.__subclasses__():
        assert result.model_config.get("frozen")
        with pytest.raises(ValidationError, match="Extra inputs"):
            result.model_validate({"valeu": 1})


# Incumbents of a study.


def trial(number: int, state: TrialState, epochs: list[tuple[float, float]]) -> FrozenTrial:
    """A trial with epochs given as (end, value)."""
    records: list[Any] = [
        {**record(epoch, value), "start": end - 1, "end": end} for epoch, (end, value) in enumerate(epochs, start=1)
    ]
    made = create_trial(
        state=state,
        value=max(value for _, value in epochs) if state == TrialState.COMPLETE else None,
        user_attrs={record_key(entry): entry for entry in records},
    )
    made.number = number
    return made


TRIALS = [
    trial(0, TrialState.COMPLETE, [(2.0, 0.1), (5.0, 0.4), (9.0, 0.3)]),
    trial(1, TrialState.PRUNED, [(3.0, 0.2), (4.0, 0.1)]),
    trial(2, TrialState.COMPLETE, [(6.0, 0.3), (7.0, 0.5), (8.0, 0.5)]),
]


def test_incumbents_follow_the_clock_over_all_trials() -> None:
    found = incumbents(TRIALS, lambda records: running_value(records, "map_at_r"))
    steps = [(step.epochs, step.value, step.trial) for step in found]
    assert steps == [(1, 0.1, 0), (2, 0.2, 1), (4, 0.4, 0), (6, 0.5, 2)]
    found = incumbents(TRIALS[2:], lambda records: 0.4 if len(records) == 3 else None)
    assert found == (Incumbent(epochs=3, value=0.4, trial=2),), "before the first value there is none"
    assert incumbents([], lambda records: 0.4) == ()


# Seeds that failed and seeds that are missing, where an interval rests on fewer than asked for.


def of_seed(seed: int, state: TrialState, cause: str | None = None) -> FrozenTrial:
    attributes = {"seed": seed, **({"failure": {"cause": cause, "reason": "so"}} if cause else {})}
    return create_trial(state=state, value=0.5 if state == TrialState.COMPLETE else None, user_attrs=attributes)


COMPLETE, FAIL, WAITING, RUNNING = TrialState.COMPLETE, TrialState.FAIL, TrialState.WAITING, TrialState.RUNNING


@pytest.mark.parametrize(
    ("trials", "wanted", "sentence"),
    [
        ([of_seed(1, COMPLETE), of_seed(2, COMPLETE)], 2, None),
        ([of_seed(1, COMPLETE), of_seed(2, FAIL, "DIVERGED")], 2, "1 of 2 seeds; 1 failed (DIVERGED)"),
        ([of_seed(1, COMPLETE)], 3, "1 of 3 seeds; 2 missing"),
        (
            [of_seed(1, FAIL, "LOST"), of_seed(2, FAIL, "DIVERGED"), of_seed(3, FAIL, "DIVERGED"), of_seed(4, RUNNING)],
            5,
            "0 of 5 seeds; 1 failed (LOST), 2 failed (DIVERGED), 2 missing",
        ),
        # A seed with folds is complete when all of them are, and failed when one is.
        ([of_seed(1, COMPLETE), of_seed(1, FAIL, "CODE_ERROR")], 1, "0 of 1 seed; 1 failed (CODE_ERROR)"),
        ([of_seed(1, COMPLETE), of_seed(1, RUNNING), of_seed(2, COMPLETE)], 2, "1 of 2 seeds; 1 missing"),
    ],
)
def test_what_became_of_seeds(trials: Sequence[FrozenTrial], wanted: int, sentence: str | None) -> None:
    found = SeedOutcomes.of(trials, wanted)
    assert SeedOutcomes.of([], wanted) is None, "a stage that has not begun"
    assert found is not None
    assert found.sentence == sentence
    assert found.complete + sum(found.failed.values()) + found.missing == found.wanted


def test_tables_and_summary_and_report_say_which(opened: Callable[..., WritableRecords]) -> None:
    """Of the chosen configuration one final seed diverges and one is never trained; the default's are all there."""
    search = opened(search={"trials": 3, "pruner": "none"}, final={"seeds": 3}, losses=["pnp"])
    drive(search, lambda job, epoch: job.number / 10 + epoch / 100)
    queue = TrialQueue(iter([confirm_stage(search)]))
    while job := queue.next_trial():
        train(queue, job, lambda job, epoch: job.study.trial(job.number).user_attrs["source_trial"] / 10)
    queue = TrialQueue(only(final_stage(search, freeze(search))))
    jobs = list(iter(queue.next_trial, None))
    tuned = [job for job in jobs if job.study.trial(job.number).user_attrs["source_trial"] != 0]
    for job in jobs:
        if job not in tuned[1:]:
            train(queue, job, lambda job, epoch: 0.1)
    queue.on_trial_result(tuned[1], Failed(cause="DIVERGED", reason="The training loss became nan."))
    summary = write_summary(search)
    entry = summary.losses["pnp"]
    assert entry.incomplete_seeds == ["tuned final: 1 of 3 seeds; 1 failed (DIVERGED), 1 missing"]
    stored = json.loads(search.folder.summary.read_text())["losses"]["pnp"]
    assert stored["tuned"]["final_seeds"] == {"wanted": 3, "complete": 1, "failed": {"DIVERGED": 1}, "missing": 1}
    assert stored["default"]["final_seeds"]["complete"] == 3
    comparison = compare([search])
    told = "1 of 3 seeds; 1 failed (DIVERGED), 1 missing"
    for tables in (headline_tables, text_tables):
        assert any(told in note for table in tables(comparison) for note in table.notes)
    assert any(told in sentence for sentence in answer(comparison).remarks)


def test_remarks_are_the_early_end_overtuning_and_findings() -> None:
    worse, better = (SeedStatistics.over([mean, mean]) for mean in (0.3, 0.4))
    entry = made_loss(
        tuned=made_row(final=worse),
        default=made_row(Role.DEFAULT, final=better),
        ended_early="the grid has 4 points",
        diagnostics=(Finding(kind="edge", parameters=("alpha",), sentence="the values still rise"),),
    )
    early, overtuned, finding = entry.remarks
    assert (early, finding) == ("the grid has 4 points", "the values still rise")
    assert overtuned.startswith("overtuned? with the fresh seeds")
    assert made_loss(tuned=made_row(final=better), default=made_row(Role.DEFAULT, final=worse)).overtuned is None


# Diagnostics on made-up studies: they speak where they should, and are silent where they should not.

UNIT = Float(0, 1)


def space(**ranges: Range) -> Space:
    return {name: replace(entry, default=entry.ends[0]) for name, entry in ranges.items()}


def directions(declared: Space, best: dict[str, Value]) -> dict[str, bool]:
    """Return for each edge if it is the high end."""
    found = edges(declared, best, lambda name, beyond: True)
    return {entry.parameters[0]: "upwards" in entry.sentence for entry in found}


@pytest.mark.parametrize(
    ("entry", "low", "inside", "high"),
    [
        (Float(0, 10), 0.4, 5, 9.6), (Float(0, 1, step=0.1), 0.0, 0.9, 1.0),
        (Float(0.01, 1, log=True), 0.011, 0.04, 0.9), (Int(1, 100), 3, 50, 97), (Choice((16, 1, 4, 2, 8)), 1, 8, 16),
    ],
)  # fmt: skip
def test_a_best_value_at_an_end_is_an_edge(entry: Range, low: Value, inside: Value, high: Value) -> None:
    declared = {"x": replace(entry, default=inside), "y": replace(UNIT, default=0.5)}
    assert directions(declared, {"x": low, "y": 0.4}) == {"x": False}
    assert directions(declared, {"x": inside, "y": 0.4}) == {}
    assert directions(declared, {"x": high, "y": 0.4}) == {"x": True}
    assert directions({"x": replace(entry, default=high)}, {"x": high}) == {}, "the papers' value"
    asked: list[Value] = []

    def allowed(name: str, beyond: Value) -> bool:
        asked.append(beyond)
        return False

    assert not [*edges(declared, {"x": low}, allowed), *edges(declared, {"x": high}, allowed)], "the domain's ends"
    assert len(asked) == 2
    for beyond in asked:
        assert not declared["x"].contains(beyond), "the domain is asked about a value outside the range"
        assert isinstance(beyond, int) or not isinstance(entry, Int)


def test_neither_names_nor_constants_have_ends() -> None:
    for entry in (Choice(("a", "b", "c")), Float(2, 2)):
        assert directions(space(x=entry, y=UNIT), {"x": entry.ends[-1], "y": 0.5}) == {}


def test_the_domain_of_a_loss_and_of_the_training_is_known() -> None:
    declared = {**SPACES["proxy_anchor"], **space(**{"training.lr": Float(1e-4, 1e-2, log=True)})}

    def found(end: int) -> set[tuple[str, ...]]:
        best = {name: entry.ends[end] for name, entry in declared.items()}
        others = {name: replace(entry, default=entry.ends[-1 - end]) for name, entry in declared.items()}
        findings = diagnose("proxy_anchor", others, TrainingConfig(), [], best, "map_at_r")
        return {entry.parameters for entry in findings}

    assert ("training.lr",) in found(-1)
    assert found(0) == {("training.lr",)}, "neither a margin nor a scale can be lower"


def with_epochs(
    values: Sequence[float], losses: Sequence[float | None], value: float | None = None, **more: float
) -> FrozenTrial:
    """Return a complete trial with these validations and losses of its epochs, and ``more`` metrics."""
    trial = create_trial(value=max(values, default=0.5) if value is None else value)
    for epoch, (of_epoch, loss) in enumerate(zip(values, losses, strict=True), start=1):
        metrics = {"map_at_r": of_epoch, **{name: of * epoch for name, of in more.items()}}
        record: Any = {"epoch": epoch, "metrics": metrics} | ({} if loss is None else {"loss": loss})
        trial.user_attrs[record_key(record)] = record
    return trial


@pytest.mark.parametrize(
    ("best", "epochs", "kind"),
    [
        ((1, 2, 1), 20, "first_epochs"),
        ((2, 9, 2), 20, "first_epochs"),
        ((3, 3, 1), 20, None),
        ((1, 1, 4), 4, "first_epochs"),
        ((1, 1, 1), 3, None),  # an epoch is a third of the training
        ((1, 1), 20, None),
        ((20, 20, 20), 20, "last_epochs"),
        ((20, 20, 19), 20, None),
    ],
)
def test_best_epochs_that_are_the_first_or_the_last(best: tuple[int, ...], epochs: int, kind: str | None) -> None:
    """A worse trial, whose best epoch is the last one, does not count."""
    trials = [
        with_epochs(
            [1 - abs(epoch - peak) / epochs for epoch in range(1, epochs + 1)], [1] * epochs, 0.9 - 0.1 * number
        )
        for number, peak in enumerate((*best, epochs))
    ]
    trials = trials[: len(best)] + trials[len(best) :] * (len(best) > 2)
    found = [*extreme_epochs(trials, "map_at_r", epochs)]
    assert [finding.kind for finding in found] == [kind] * (kind is not None)
    shown = f"{', '.join(map(str, best[:-1]))} and {best[-1]} of {epochs}"
    assert all(shown in finding.sentence for finding in found if kind == "first_epochs")
    named = [one.parameters for one in extreme_epochs(trials, "map_at_r", epochs, ["training.lr"]) if one.parameters]
    assert named == [("training.lr",)] * (kind == "last_epochs")


@pytest.mark.parametrize(
    ("losses", "changes", "of_ours", "of_own"),
    [
        ((0.0, 0.0), False, True, True),
        ((0.0, 0.0), True, True, False),
        ((0.0,), False, True, False),
        ((0.0, 0.1), False, False, False),
        ((None, None), False, False, False),
        ((), False, False, False),
    ],
)
def test_a_loss_of_zero_in_all_epochs_is_told(
    losses: tuple[float | None, ...], changes: bool, of_ours: bool, of_own: bool, tmp_path: Path
) -> None:
    """A user-defined training may report no loss, or one that its library has cleared."""
    idle = with_epochs([0.5 + 0.1 * changes * at for at in range(len(losses))], losses, embed_ms=3.0)
    good = with_epochs((0.3, 0.4), (0.3, 0.2))
    for own, is_found in ((False, of_ours), (True, of_own)):
        found = [finding.sentence for finding in nothing_learned([idle, good], "map_at_r", own=own)]
        assert len(found) == is_found
        assert all("the loss of 1 of 2 complete trials was 0 in all epochs" in sentence for sentence in found)
        assert all(("training.sampler" in sentence) != own for sentence in found), "advice that does not apply"
        spec = replace(own_spec(tmp_path, "x:y", epochs=2), trainable="x:y" if own else None)
        assert whole_training(idle, spec).endswith("nothing was learned") == is_found
        assert whole_training(good, spec) == "all 2 epochs trained"


@pytest.mark.parametrize(
    ("values", "is_found"),
    [
        ([(0.29, 0.29), (0.29, 0.29)], True),
        ([(0.29, 0.29), (0.29, 0.3)], False),
        ([(0.29, 0.29), (0.3, 0.3)], False),
        ([(1.0, 1.0), (1.0, 1.0)], False),
        ([(0.29,), (0.29,)], False),
        ([], False),
    ],
)
def test_a_validation_that_never_changes_is_told(values: list[tuple[float, ...]], is_found: bool) -> None:
    """That of two epochs may be equal by chance, and the best one needs no change."""
    trials = [with_epochs(of, [0.3] * len(of), embed_ms=3.0) for of in values]
    for loss, fix in (("pnp", "raise training.lr"), (None, "check that the training changes the model that embeds")):
        found = diagnose(loss, {}, TrainingConfig(epochs=5), trials, None, "map_at_r")
        assert [finding.sentence for finding in found] == is_found * [
            f"the validation of 2 complete trials is map_at_r 29.00 in all epochs, however they train: {fix}"
        ]
