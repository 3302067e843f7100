"""All checks of a search, and the plan where none finds anything."""

from collections.abc import Callable
from pathlib import Path

from search.config.search_config import SearchConfig
from search.plan.checks.addresses import check_addresses, check_runs_folder
from search.plan.checks.data import check_data, check_further_splits, check_sizes, split_of
from search.plan.checks.findings import Findings
from search.plan.checks.gallery import check_gallery
from search.plan.checks.images import check_images_readable
from search.plan.checks.machine import check_machine
from search.plan.checks.network import check_network
from search.plan.checks.noise import check_noise
from search.plan.checks.parts import check_parts, check_stack
from search.plan.checks.spaces import check_spaces
from search.plan.plan import Plan
from search.plan.runs import RunFolder


def make_plan(
    config: SearchConfig,
    runs: Path,
    *,
    goes_on: bool = False,
    findings: Findings | None = None,
    is_finished: Callable[[Plan], bool] = lambda plan: False,
) -> Plan:
    """The plan of a search.

    Args:
        config: the search file.
        runs: the runs folder; nothing in it is touched.
        goes_on: whether it began before. Storage and tracking server are not asked then, since its studies outlive an
            outage of MLflow, and its spaces are not tried again.
        findings: what is wrong before, which is raised with the rest.
        is_finished: whether nothing will be trained, asked where nothing is wrong: the network is then not tried.

    Raises:
        Mistakes: all that is wrong.
    """
    found = Findings() if findings is None else findings
    data = split_of(found, config)
    if data is not None:
        check_data(found, config, data)
    check_sizes(found, config)
    check_gallery(found, config)
    further_splits = check_further_splits(found, config)
    spaces = check_spaces(found, config, accepted=goes_on)
    check_noise(found, config, spaces)
    check_machine(found, config)
    check_parts(found, config)
    check_stack(found, config)
    if not goes_on:
        check_addresses(found, config)
        check_runs_folder(found, runs)
    if data is not None and found.sentences:  # else they are all decoded next
        check_images_readable(found, config, data)
    plan = None
    if data is not None and not found.sentences:
        folder = RunFolder(runs, config.name)
        plan = Plan(config=config, folder=folder, split=data.split, spaces=spaces, further_splits=further_splits)
    if plan is None or not is_finished(plan):
        check_network(found, config)
    found.raise_if_any()
    assert plan is not None
    return plan
