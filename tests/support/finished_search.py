"""Searches run through all of their stages in this process, with real trainings and without Ray."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from search.config.search_config import parse_config
from search.difference import Family
from search.driver.finish import write_summary
from search.driver.inputs import note_opened_images, validate_baselines, with_training_images, without_baselines
from search.driver.listeners import CheckpointCleanup
from search.driver.make_plan import make_plan
from search.driver.sealed import score_test
from search.driver.stages import STAGES, Order, trials_in_turn
from search.records.campaign import Campaign, parse_campaign
from search.records.runs import CampaignFolder
from search.records.score_files import validate_untrained
from search.records.writable import WritableRecords, open_search
from search.results.campaign import CampaignResult, campaign_family, campaign_result
from search.show.model_cards import write_model_folders
from search.stages import Stage
from search.study.trial_queue import RunningTrial, TrialQueue
from search.trust import addresses_in, own_code, remember
from trainables.training.cross_validation import CrossValidation, begin
from trainables.training.epoch_training import EpochTraining
from trainables.training.spec import Epochs

SLOTS = 2
"""Number of concurrent trials, which take turns after every epoch."""


def run_here(
    runs: Path,
    files: Sequence[dict[str, Any]],
    *,
    opener: str | None = None,
    family: Family | None = None,
    epochs: int | None = None,
) -> list[WritableRecords]:
    """Run the requested stages of the searches, or only the first ``epochs`` epochs.

    The searches stay open, as after a killed driver.
    """
    torch.set_num_threads(1)  # like a worker
    plans = [with_training_images(make_plan(parse_config(file), runs)) for file in files]
    for plan in plans:
        if not plan.folder.config.exists():
            plan.folder.path.mkdir(parents=True, exist_ok=True)
            note_opened_images(plan)
    searches = [open_search(plan) for plan in plans]
    console = Console(quiet=True)
    stages = searches[0].config.stages
    for search in searches:
        content, folder = search.config.model_dump(mode="json"), search.folder.path
        remember(folder, addresses_in(folder, content) | own_code(content))
        search.begin_session(time.time(), SLOTS)
    validate_baselines(without_baselines(searches), lambda specs: [*map(validate_untrained, specs)])
    cleanups = [*map(CheckpointCleanup, searches)]
    order = Order(console=console, stages=stages, started=0.0, opener=opener or searches[0].name, family=family)
    queued = trials_in_turn([STAGES[stage](searches, order) for stage in stages])
    if not _train(TrialQueue(queued, cleanups), epochs):
        return searches
    if Stage.TEST in stages:
        score_test(searches, console, opener=order.opener, reason=None, run=in_turn)
    for search in searches:
        write_summary(search)
        if search.is_done(Stage.TEST):
            write_model_folders(search)
    return searches


def recorded(search: WritableRecords) -> WritableRecords:
    write_summary(search)
    return search


def in_turn(function: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
    """Compute ``function`` of each argument in this process, as an engine's ``map``."""
    return [function(argument) for argument in arguments]


def finish(runs: Path, *files: dict[str, Any]) -> Path:
    """Run the requested stages of the searches, close them, and return the runs folder."""
    for search in run_here(runs, files):
        search.close()
    return runs


def _train(queue: TrialQueue, epochs: int | None) -> bool:
    """Train the trials of the queue, at most ``epochs`` epochs; return True if the queue is done."""
    running: list[tuple[RunningTrial, EpochTraining | CrossValidation]] = []
    while True:
        while len(running) < SLOTS and (trial := queue.next_trial()):
            running.append((trial, begin(trial.spec, torch.device("cpu"))))
        if not running:
            return True
        if epochs is not None and (epochs := epochs - 1) < 0:
            for _, training in running:
                training.wait_for_checkpoints()
            return False
        trial, training = running.pop(0)
        news = Epochs([training.run_epoch()], finished=training.finished)
        if queue.on_trial_result(trial, news):
            running.append((trial, training))
        else:
            training.wait_for_checkpoints()
            training.end()


@contextmanager
def campaign_here(runs: Path, written: dict[str, Any]) -> Iterator[tuple[Campaign, CampaignResult]]:
    """Run the searches of a campaign file, and yield the campaign with its result while they are open."""
    campaign = parse_campaign(written)
    folder = CampaignFolder(runs, campaign.name)
    folder.begin(campaign.config)
    files = [each.model_dump(mode="json", by_alias=True) for each in campaign.searches]
    searches = run_here(runs, files, opener=campaign.name, family=campaign_family(campaign))
    result = campaign_result(campaign, [*map(recorded, searches)])
    folder.end(result.model_dump(mode="json"))
    yield campaign, result
    for search in searches:
        search.close()
