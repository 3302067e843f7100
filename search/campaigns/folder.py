"""A campaign's folder, and the checks before it begins."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from search.campaigns.cells import CampaignResult
from search.campaigns.config import Campaign, CampaignConfig, parse_campaign, read_config
from search.config.search_config import SearchConfig
from search.config.yaml_file import read_yaml
from search.plan.make_plan import read_plan
from search.plan.plan import Plan
from search.plan.runs import RunFolder
from search.selection.ledger import Ledger
from search.selection.selection import Selection
from trainables.files import write_json, write_text
from trainables.mistakes import Mistakes, raise_if_any

# A campaign's own folder: ``campaign.yaml``, from its beginning, and ``campaign.json``, what it came to.


@dataclass(frozen=True)
class CampaignFolder:
    """The folder of the campaign ``name`` below ``runs``."""

    runs: Path
    name: str

    @property
    def config(self) -> Path:
        """The campaign file."""
        return self.runs / self.name / "campaign.yaml"

    @property
    def result(self) -> Path:
        """What the campaign came to."""
        return self.runs / self.name / "campaign.json"

    @property
    def report(self) -> Path:
        """What the campaign came to, in pictures."""
        return self.runs / self.name / "report.html"

    def begin(self, config: CampaignConfig) -> None:
        """Write down the campaign that begins, or goes on with another table or further labels."""
        self.config.parent.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        write_text(self.config, text)

    def end(self, result: CampaignResult) -> bool:
        """Write down what the campaign came to; whether that was not there already."""
        before = self.result.read_bytes() if self.result.exists() else None
        write_json(self.result, result.model_dump(mode="json"))
        return self.result.read_bytes() != before

    def searches(self) -> list[str]:
        """What the searches are called that the campaign began with; none before it began."""
        begun = RunFolder(self.runs, self.name).is_campaign
        return read_config(read_yaml(self.config)).search_names if begun else []


def campaign_of(runs: Path, name: str) -> CampaignFolder | None:
    """The campaign whose search is called ``name``; None where it is a search by itself."""
    for file in sorted(runs.glob("*/campaign.yaml")):
        campaign = CampaignFolder(runs, file.parent.name)
        if name.startswith(f"{campaign.name}-") and name in campaign.searches():
            return campaign
    return None


def refuse_member(runs: Path, name: str) -> None:
    """The searches of a campaign are chosen and tested together, and none of them by hand.

    Raises:
        Mistakes: ``name`` is such a search.
    """
    if campaign := campaign_of(runs, name):
        raise Mistakes(
            f"{name} is a search of the campaign {campaign.name}, whose searches are chosen and tested together; "
            "`holdout campaign` with its file goes on with all of them."
        )


# Everything that can be wrong with a campaign, before anything of it is created.


def read_campaign_plans(content: Mapping[str, Any], runs: Path) -> tuple[Campaign, list[Plan]]:
    """The campaign file ``content``, and the plans of its searches, which begin or go on below ``runs``.

    Raises:
        Mistakes: all that can be known to be wrong with the file and any of its searches, or other searches than the
            campaign may go on with.
    """
    plans: list[Plan] = []

    def planned(search: dict[str, Any]) -> SearchConfig:
        plans.append(read_plan(search, runs))
        return plans[-1].config

    try:
        campaign = parse_campaign(content, planned)
    except Mistakes as error:
        raise Mistakes(list(dict.fromkeys([*_mistakes_of_form(content), *error.sentences]))) from error
    folder = CampaignFolder(runs, campaign.name)
    if RunFolder(runs, campaign.name).config.exists():
        raise Mistakes(f"name: {campaign.name} is a search in {runs}; call the campaign something else.")
    raise_if_any([*_vanished(plans, folder), *_late(plans, folder)])
    return campaign, plans


def _mistakes_of_form(content: Mapping[str, Any]) -> tuple[str, ...]:
    """What is wrong in the file itself, also between its searches, which is not looked at where one cannot begin."""
    try:
        parse_campaign(content)
    except Mistakes as error:
        return error.sentences
    return ()


def _vanished(plans: Sequence[Plan], folder: CampaignFolder) -> Iterator[str]:
    """What was tried stays in the table: a variant that did badly is not dropped silently."""
    names = [plan.config.name for plan in plans]
    gone = [name for name in folder.searches() if name not in names and RunFolder(folder.runs, name).config.exists()]
    if gone:
        yield (
            f"vary: {folder.name} began with {', '.join(gone)} too; put the labels back, or give the campaign a new "
            "name. Labels may be added until the configurations are frozen; a table that changes after that says so."
        )


def _late(plans: Sequence[Plan], folder: CampaignFolder) -> Iterator[str]:
    """One opening is for all searches, so none may begin or join after it.

    Openings by other searches of the same names are another campaign's, in another runs folder.
    """
    begun = folder.searches() or [plan.config.name for plan in plans]
    late = ", ".join(
        plan.config.name for plan in plans if not (plan.config.name in begun and plan.folder.config.exists())
    )
    frozen = {plan.config.name: plan.folder.selection for plan in plans if plan.folder.selection.exists()}
    if not (late and frozen):
        return
    ledger = Ledger(plans[0].folder.openings)
    tested = [name for name, selection in frozen.items() if ledger.of_selection(Selection.load(selection).digest)]
    if tested:
        yield (
            f"{late}: the test classes were opened for {', '.join(tested)}, and a campaign opens them once for all of "
            "its searches; give the larger campaign a new name."
        )
    else:
        yield (
            f"{late}: the configurations of {', '.join(frozen)} are frozen already, with the rows and pairs of their "
            "table; give the larger campaign a new name."
        )
