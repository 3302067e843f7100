"""The table of scenarios: a search, its services and its possible faults each."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.sleeping_engine import sleeping_search
from support.small_search import draw_folder, small_search


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One kind of search.

    ``content`` makes the search file of a scenario, given its name and a folder of images. ``nodes`` is the
    number of Ray nodes; with 0 each driver starts its own Ray. ``openings`` is the number of openings of the
    test classes.
    """

    name: str
    faults: tuple[str, ...]
    content: "Content"
    losses: tuple[str, ...] = ("mpa",)
    trials: int = 24
    epochs: int = 15
    epoch_s: float = 0.15
    nodes: int = 1
    postgres: bool = False
    store: bool = False
    disks: bool = False
    openings: int = 0

    @property
    def searched(self) -> dict[str, Any]:
        """How it searches: its proposals depend on the trial number alone."""
        return {"trials": self.trials, "pruner": "none", "sampler": "random"}


Content = Callable[[Scenario, str, Path], dict[str, Any]]


def _sleeping(scenario: Scenario, name: str, _: Path) -> dict[str, Any]:
    """Return a search of sleeping trainings."""
    return sleeping_search(
        name=name,
        trials=scenario.trials,
        epochs=scenario.epochs,
        losses=[*scenario.losses],
        search=scenario.searched,
    )


def _training(scenario: Scenario, name: str, images: Path) -> dict[str, Any]:
    made = small_search(images if images.exists() else draw_folder(images, images=24))
    made |= {"name": name, "losses": [*scenario.losses], "search": scenario.searched}
    made["training"] |= {"epochs": scenario.epochs}
    return made | {"selection": {"finalists": 1, "seeds": 1}, "final": {"seeds": 1}, "resources": {"engine": "ray"}}


OF_DRIVER = ("driver killed", "driver ended", "driver stopped")
OF_TRAINER = ("trainer killed", "trainer ended", "trainer stopped")
OF_RAY = ("raylet killed", "raylet stopped", "GCS killed", "GCS stopped")
OF_SERVICES = ("MLflow killed", "MLflow stopped", "PostgreSQL killed", "PostgreSQL restarted", "PostgreSQL stopped")

_TRAININGS = Scenario(
    name="trainings",  # real ones, to the test
    content=_training,
    faults=("driver killed", "trainer killed", "trainer stopped", "runs full", "cache full"),
    losses=("proxy_anchor",),
    trials=6,
    epochs=20,
    disks=True,
    openings=1,
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="alone",  # each driver has a Ray of its own
            content=_sleeping,
            faults=(*OF_DRIVER, *OF_TRAINER, *OF_RAY),
            trials=20,
            nodes=0,
        ),
        Scenario(
            name="cluster",
            content=_sleeping,
            faults=(*OF_DRIVER, *OF_TRAINER, "node killed", "node stopped", "head killed", "GCS stopped"),
            nodes=2,
        ),
        Scenario(
            name="services",
            content=_sleeping,
            faults=(*OF_SERVICES, "driver killed", "driver stopped", "trainer killed"),
            postgres=True,
        ),
        _TRAININGS,
        replace(
            _TRAININGS,
            name="store",  # whose checkpoints lie elsewhere
            faults=("driver killed", "trainer killed", "store refuses", "store lags", "store gives half"),
            disks=False,
            store=True,
        ),
    )
}
