"""The table of scenarios: a search, its services and its possible faults each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.sleeping_engine import sleeping_search
from support.small_search import draw_folder, small_search


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One kind of search: of sleeping trainings, or one that ``trains`` to its test, on small disks.

    ``nodes`` is the number of Ray nodes; with 0 each driver starts its own Ray.
    """

    name: str
    faults: tuple[str, ...]
    trials: int = 24
    epochs: int = 15
    nodes: int = 1
    postgres: bool = False
    trains: bool = False

    @property
    def loss(self) -> str:
        return "proxy_anchor" if self.trains else "mpa"

    def content(self, name: str, images: Path) -> dict[str, Any]:
        """Return the file of a search called ``name``, whose proposals depend on the trial number alone."""
        search = {"trials": self.trials, "pruner": "none", "sampler": "random"}
        if not self.trains:
            return sleeping_search(name=name, trials=self.trials, epochs=self.epochs, losses=[self.loss], search=search)
        root = images if images.exists() else draw_folder(images, images=24)
        made = small_search(root, name=name, losses=[self.loss], search=search, resources={"engine": "ray"})
        made["training"] |= {"epochs": self.epochs}
        return made | {"selection": {"finalists": 1, "seeds": 1}, "final": {"seeds": 1}}


OF_DRIVER = ("driver killed", "driver ended", "driver stopped")
OF_TRAINER = ("trainer killed", "trainer ended", "trainer stopped")
OF_RAY = ("raylet killed", "raylet stopped", "GCS killed", "GCS stopped")
OF_SERVICES = ("MLflow killed", "MLflow stopped", "PostgreSQL killed", "PostgreSQL restarted", "PostgreSQL stopped")

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="alone", faults=(*OF_DRIVER, *OF_TRAINER, *OF_RAY), trials=20, nodes=0),
        Scenario(
            name="cluster",
            faults=(*OF_DRIVER, *OF_TRAINER, "node killed", "node stopped", "head killed", "GCS stopped"),
            nodes=2,
        ),
        Scenario(
            name="services",
            faults=(*OF_SERVICES, "driver killed", "driver stopped", "trainer killed"),
            postgres=True,
        ),
        Scenario(
            name="trainings",
            faults=("driver killed", "trainer killed", "trainer stopped", "runs full", "cache full"),
            trials=6,
            epochs=20,
            trains=True,
        ),
    )
}
