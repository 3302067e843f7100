"""From a search or campaign file to plans: the checks of new searches, and of those that are resumed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from search.config.search_config import SearchConfig, differences, may_change, parse_stored, validate_config
from search.config.validation import Findings
from search.config.yaml_file import read_yaml
from search.driver.data_checks import (
    check_features,
    check_sizes_and_gallery,
    check_split,
    split_of,
    with_batch_size,
    with_fitting_batch,
)
from search.driver.part_checks import (
    FROZEN,
    check_addresses,
    check_folder,
    check_machine,
    check_network,
    check_parts,
    check_vault,
)
from search.records.campaign import Campaign, parse_campaign
from search.records.plan import Growth, Plan, check_spaces, growth, in_order
from search.records.records import Records, stored_search, trusted_config
from search.records.runs import CampaignFolder, RunFolder, campaign_of
from search.trust import CHECKPOINTS, addresses_in, check_trusted, own_code, remember
from trainables.common.errors import InvalidInput, Mistake, raise_if_any
from trainables.data.dataset import is_utf8, similar_names

OF_VAULT = ("final", "metrics", "trainable", "dataset")
"""The sections of a search file that a vault has to fit."""


def read_plan(content: Mapping[str, Any], runs: Path) -> Plan:
    """Return the plan of the search file ``content``, for a search that begins or is resumed in the folder ``runs``.

    The user named this file, so without mistakes it is recorded as a search that the user started.

    Raises:
        InvalidInput: all mistakes in the file, and changes that a stored search does not allow.
    """
    found = validate_config(content)
    config = found.built
    assert config is not None, "stand-ins make every search file buildable"
    if found.replaced("name"):  # whether such a search is stored is not known
        return make_plan(config, runs, findings=found)
    folder = RunFolder(runs, config.name)
    if folder.campaign.exists():
        found.say(f"name: {config.name} is a campaign in {runs}; give the search another name.")
    return _stored(config, folder, found) if folder.config.exists() else _new(config, folder, found)


def reopened(runs: Path, name: str, *, trains: bool = False) -> Plan:
    """Return the plan of the stored search ``name``, whose network is tried, which takes seconds, if it ``trains``."""
    folder = stored_search(runs, name).folder
    plan = make_plan(trusted_config(folder), runs, resumed=True, is_finished=lambda _: not trains)
    return _with_split_of(folder, plan)


def plan_from_rules(folder: RunFolder) -> Plan:
    """Return the plan that follows from a search's file and data set, without checks of this machine's resources."""
    config, found = trusted_config(folder, addresses=(CHECKPOINTS,)), Findings[Any]()
    data = split_of(found, config)
    spaces = check_spaces(found, config, accepted=True)
    found.raise_if_any()
    assert data is not None, "no mistake was found, but there is no split"
    split = data.split if config.final.vault is None else replace(data.split, vault=Records(folder).split.vault)
    return Plan(config=config, folder=folder, split=split, spaces=spaces)


def make_plan(
    config: SearchConfig,
    runs: Path,
    *,
    resumed: bool = False,
    findings: Findings | None = None,
    fits_batch: bool = False,
    is_finished: Callable[[Plan], bool] = lambda plan: False,
) -> Plan:
    """Run all checks of a search and return its plan; raise with all mistakes. Nothing is written.

    Args:
        resumed: skip the checks of storage and tracking server, since a search survives an outage of MLflow, and do not
            try its spaces on the losses again.
        findings: earlier mistakes, to raise with the others.
        fits_batch: lower the batch size to what the training classes fill.
        is_finished: return True if nothing will be trained, so that the network need not be tried; called if no check
            found a mistake.
    """
    found = Findings() if findings is None else findings
    if not is_utf8(place := str(runs.resolve())):
        found.say(f"The runs folder is {place!r}, which is no text in UTF-8; rename it, or give another with --runs.")
    data, fitted = split_of(found, config), None
    if data is not None:
        if fits_batch:
            config, fitted = found.check(partial(with_fitting_batch, config, data)) or (config, None)
        check_split(found, config, data)
        check_features(found, config)
    check_sizes_and_gallery(found, config)
    spaces = check_spaces(found, config, accepted=resumed)
    check_machine(found, config)
    check_parts(found, config)
    if not resumed:
        check_addresses(found, config)
        found.check(lambda: check_folder("--runs", runs))
    vault = None
    if config.final.vault is not None and not resumed:
        vault = found.check(partial(check_vault, config), *OF_VAULT)
    plan = None
    if data is not None and not found.sentences:
        split = replace(data.split, vault=tuple((name, str(vault[name])) for name in FROZEN)) if vault else data.split
        plan = Plan(config=config, folder=RunFolder(runs, config.name), split=split, spaces=spaces)
    notices: tuple[str, ...] = ()
    if plan is None or not is_finished(plan):
        notices = check_network(found, config, spaces, None if resumed else plan)  # last, since it imports torch
    found.raise_if_any()
    assert plan is not None
    left = None if vault is None else vault["openings"] - vault["opened"]
    return replace(plan, notices=(*filter(None, [fitted]), *notices), openings_left=left)


# A search that begins, is resumed or grows.


def _new(config: SearchConfig, folder: RunFolder, found: Findings[SearchConfig]) -> Plan:
    plan = make_plan(config, folder.runs, findings=found, fits_batch=not found.gives("training.batch_size"))
    _remember(plan)
    split = plan.split
    names = (*split.train, *split.validation, *split.test)
    about_data = similar_names(names), plan.images.dataset.left_out()
    return replace(plan, notices=(*filter(None, [plan.resolution, plan.vault_sentence, *about_data]), *plan.notices))


def _stored(config: SearchConfig, folder: RunFolder, found: Findings[SearchConfig]) -> Plan:
    content = read_yaml(folder.config)
    check_trusted(folder.path, own_code(content) - own_code(config.model_dump(mode="json")))
    stored = parse_stored(content, folder.config)
    if not found.gives("training.batch_size"):  # it was fitted to the classes when the search began
        config = with_batch_size(config, stored.training.batch_size)
    if campaign_of(folder.runs, config.name):  # whose searches are chosen and tested together
        before = stored.search.trials
        if config.search.trials > before and folder.selection.exists():
            text = f": the configurations of {config.name} were already chosen, after {before} trials"
            found.add([Mistake("search.trials", text, "give a campaign of searches with more trials a new name")])
        return _resumed(config, stored, folder, found, Growth())
    grown = growth(stored, config)
    if grown and Records(folder).is_tested:
        found.add([_kept(config.name, grown)])
    plan = _resumed(in_order(stored, config), stored, folder, found, grown)
    if grown and folder.selection.exists():
        notice = f"{config.name} was chosen and not tested, so it continues with {grown} and chooses again."
        return replace(plan, notices=(notice, *plan.notices))
    return plan


def _kept(name: str, grown: Growth) -> Mistake:
    """Return the mistake of a file that asks for more of a search whose test was opened, or is trained for."""
    text = f"The file asks for {grown}, and the test of {name} has been opened or is trained for, so its trials and "
    text += "choice are kept as they are"
    fix = f"give the new search a name of its own, such as `--set name={name}-2`"
    if grown.losses:
        fix += f"; it may have the added losses alone, and `holdout compare {name} {name}-2` compares both"
    return Mistake("", text, fix, ("search.trials", "losses", "space"))


def _resumed(config: SearchConfig, stored: SearchConfig, folder: RunFolder, found: Findings, grown: Growth) -> Plan:
    found.add(_forbidden_changes(stored, config, grown))
    if config.final.vault is not None and not folder.selection.exists():  # the test stage asks soon, or has its answer
        found.check(partial(check_vault, config, dict(Records(folder).split.vault).get("key")), *OF_VAULT)
    notices: tuple[str, ...] = ()
    asked, trials = config.search.trials, stored.search.trials
    if asked < trials or found.touched("search.trials"):  # the file of a search that was extended by --set resumes it
        notice = f"the file says {asked}, but {config.name} was extended to {trials}; it continues to {trials}"
        config, notices = with_trials(config, trials), (f"search.trials: {notice}.",)
    plan = make_plan(config, folder.runs, resumed=not grown.losses, findings=found, is_finished=_is_finished)
    return replace(_with_split_of(folder, plan), notices=(*notices, *plan.notices))


def _forbidden_changes(stored: SearchConfig, wanted: SearchConfig, grown: Growth) -> Iterator[Mistake]:
    for key, before, after in differences(stored.model_dump(mode="json"), wanted.model_dump(mode="json")):
        if not (may_change(key) or grown.covers(key)):
            text = f": the search {wanted.name} began with {before!r} and the file now says {after!r}"
            yield Mistake(key, text, "put it back, or give the search a new name")


def with_trials(config: SearchConfig, trials: int) -> SearchConfig:
    return config.model_copy(update={"search": config.search.model_copy(update={"trials": trials})})


def _remember(plan: Plan) -> None:
    content = plan.config.model_dump(mode="json")
    remember(plan.folder.path, addresses_in(plan.folder.path, content) | own_code(content))


def _is_finished(plan: Plan) -> bool:
    _remember(plan)  # no mistake was found, and the stored studies are read next
    stored = Records(plan.folder, plan)
    return all(map(stored.is_done, reversed(plan.config.stages)))  # the last stage is the most likely to be incomplete


def _with_split_of(folder: RunFolder, plan: Plan) -> Plan:
    """Return ``plan`` with the split stored in ``folder``, and the digest of its images; raise if classes changed."""
    if not folder.split.exists():
        return plan
    stored = Records(folder).split
    now = replace(plan.split, images=stored.images, vault=stored.vault)
    if stored.digest != now.digest:
        names = dict.fromkeys(name for split in (stored, now) for name, _ in split.marks)
        marks = f", or their {', '.join(names)}," if names else ""
        raise InvalidInput(
            f"The classes in the data set{marks} are not those that {folder.name} began with (its split "
            f"is {stored.digest[:12]}, now it would be {now.digest[:12]}); put them back, or give the search a new "
            "name."
        )
    return replace(plan, split=stored)


# The searches of a campaign.


def read_campaign_plans(content: Mapping[str, Any], runs: Path) -> tuple[Campaign, list[Plan]]:
    """Validate the campaign file ``content`` and plan its searches, which start or resume below ``runs``.

    Raises:
        InvalidInput: all mistakes in the file and its searches, or searches that were removed or added too late.
    """
    plans: list[Plan] = []

    def planned(search: dict[str, Any]) -> SearchConfig:
        plans.append(read_plan(search, runs))
        return plans[-1].config

    try:
        campaign = parse_campaign(content, planned)
    except InvalidInput as error:
        found = error.sentences
        try:  # parsing stops before some mistakes in the file itself if a search cannot be planned
            parse_campaign(content)
        except InvalidInput as of_form:
            found = (*of_form.sentences, *found)
        raise InvalidInput(list(dict.fromkeys(found))) from error
    if RunFolder(runs, campaign.name).config.exists():
        raise InvalidInput(f"name: {campaign.name} is a search in {runs}; give the campaign another name.")
    raise_if_any([*_changed_members(plans, CampaignFolder(runs, campaign.name))])
    return campaign, plans


def _changed_members(plans: Sequence[Plan], folder: CampaignFolder) -> Iterator[str]:
    """Yield the mistakes in a campaign's searches: some removed, some too late, or more than the vault has openings."""
    names, begun = [plan.config.name for plan in plans], folder.searches()
    # variants with bad results must not be dropped silently
    if gone := [name for name in begun if name not in names and RunFolder(folder.runs, name).config.exists()]:
        yield (
            f"vary: {folder.name} started with {', '.join(gone)} too; put the labels back, or give the campaign a new "
            "name. Labels may be added until the configurations are frozen; later changes of the table are reported."
        )
    late = [of.config.name for of in plans if of.config.name not in (begun or names) or not of.folder.config.exists()]
    frozen = [Records(plan.folder, plan) for plan in plans if plan.folder.selection.exists()]
    if late and frozen:  # one opening serves all searches
        tested = [search.name for search in frozen if search.ledger.of_selection(search.frozen_selection.digest)]
        of = ", ".join(tested or [search.name for search in frozen])
        why = f"the configurations of {of} are frozen already, with the rows and pairs of their table"
        if tested:
            why = f"the test classes were opened for {of}, and a campaign opens them once for all of its searches"
        yield f"{', '.join(late)}: {why}; give the extended campaign a new name."
    left = [plan.openings_left for plan in plans if plan.openings_left is not None]
    if left and min(left) < len(left):
        yield (
            f"final.vault: {len(left)} searches begin, each of which takes an opening, and the vault has {min(left)} "
            "left; ask its owner for more."
        )
