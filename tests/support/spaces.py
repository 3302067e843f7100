"""The search spaces of a file."""

from search.config.search_config import SearchConfig
from search.config.validation import Findings
from search.records.plan import check_spaces
from spaces.search_space import SearchSpace


def spaces_of(config: SearchConfig) -> dict[str, SearchSpace]:
    """The space of every loss, none of which has a mistake."""
    found = Findings()
    spaces = check_spaces(found, config)
    found.raise_if_any()
    return spaces
