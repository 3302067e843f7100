"""Show a finished campaign beside the numbers of its paper: `python -m examples.papers.published NAME [--runs RUNS]`.

`published/` has the numbers as the papers print them (per cent), by campaign: `published` for rows of our tables, each
with the role of our number and the classes that the paper trained on; `published_choices`, the best hyperparameters,
by our names; and `quoted`, rows without a counterpart in ours. A cell is a loss and a label of each axis.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.config.recipes import read_file
from search.config.search_config import differences
from search.config.yaml_file import read_yaml
from search.records.campaign import read_config
from search.records.runs import CampaignFolder
from search.results.campaign import stored_result

if TYPE_CHECKING:
    import pandas

FILES = {path.stem: path for path in sorted((Path(__file__).parent / "published").glob("*.yaml"))}


def beside(folder: CampaignFolder) -> "pandas.DataFrame":
    """Return our mean of each cell that the paper has a number of, in per cent, beside that number."""
    import pandas

    ours = stored_result(folder).to_frame()
    ours["cell"] = ours.iloc[:, : list(ours).index("configuration")].agg(" ".join, axis=1)
    ours[["mean", "std"]] = 100 * ours[["mean", "std"]].astype(float)
    keys = ["cell", "configuration", "metric"]
    return ours[[*keys, "mean", "std"]].merge(pandas.DataFrame(printed(folder.name)), on=keys)


def printed(name: str) -> list[dict[str, Any]]:
    """Return the numbers of the paper that belong to cells of the campaign ``name``."""
    return [
        {
            "cell": cell,
            "configuration": section["role"],
            "metric": metric,
            "published": number,
            "train_on": section.get("train_on", "all"),
            "source": section["source"],
        }
        for section in read_yaml(FILES[name])["published"]
        for cell, numbers in section["cells"].items()
        for metric, number in zip(section["metrics"], numbers, strict=True)
    ]


def changed(folder: CampaignFolder) -> list[str]:
    """Return the settings of a campaign that are not those of the shipped one, whose numbers the paper has."""
    files = read_yaml(folder.config), read_file(Path(folder.name))
    ours, theirs = (read_config(file).model_dump(mode="json") for file in files)
    return [
        f"{key} is {here!r}, not {there!r}"
        for key, here, there in differences(ours, theirs)
        if not key.endswith(".root") and not (isinstance(here, dict) and here.keys() == {"root"})
    ]


def main(arguments: list[str] | None = None) -> None:
    """Print the table, and the settings that differ from the paper's."""
    parser = argparse.ArgumentParser(prog="python -m examples.papers.published")
    parser.add_argument("name", choices=FILES)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    given = parser.parse_args(arguments)
    folder = CampaignFolder(given.runs, given.name)
    print(beside(folder).to_string(index=False, float_format="{:.2f}".format))
    for sentence in changed(folder):
        print(f"not comparable: {sentence}")


if __name__ == "__main__":
    main()
