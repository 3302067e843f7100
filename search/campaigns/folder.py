"""A campaign's own folder: ``campaign.yaml``, from its beginning, and ``campaign.json``, what it came to."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from search.campaigns.config import CampaignConfig, read_config
from search.campaigns.results.types import CampaignResult
from search.config.yaml_file import read_yaml
from search.plan.runs import RunFolder
from trainables.files.whole import write_json, write_text
from trainables.mistakes import Mistakes


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
