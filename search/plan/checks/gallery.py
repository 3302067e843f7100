"""Whether the objective can be measured in the validation's gallery."""

from search.config.search_config import SearchConfig
from search.plan.checks.findings import Findings
from trainables.metrics.table import is_retrieval
from trainables.mistakes import raise_if_any


def check_gallery(found: Findings, config: SearchConfig) -> None:
    """Only a metric of rankings knows queries that are ranked among further images."""
    found.check(lambda: raise_if_any(_gallery_mistakes(config)), "metrics.gallery", "search.objective")


def _gallery_mistakes(config: SearchConfig) -> list[str]:
    objective, gallery = config.search.objective, config.metrics.gallery
    if gallery == "validation" or is_retrieval(objective):
        return []
    return [
        f"metrics.gallery is {gallery} and search.objective {objective}, which ranks no images for a query, so that "
        "the training images could have no part in it; name a metric of rankings such as map_at_r, or set "
        "metrics.gallery to validation."
    ]
