"""The table of scenarios: a search, its services and its possible faults each."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.sleeping_engine import ENGINE
from support.small_search import draw_folder, small_search

Content = Callable[[str, Path], dict[str, Any]]
"""A function that returns the content of a search or campaign file, given its name and a folder of images."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One kind of search.

    ``nodes`` is the number of Ray nodes; with 0 each driver starts its own Ray. An ``island`` is one more node, in a
    separate network. A campaign has ``members``, the suffixes of its searches' names. ``openings`` is the number of
    openings of the test classes.
    """

    name: str
    content: Content
    faults: tuple[str, ...]
    losses: tuple[str, ...]
    trials: int
    epochs: int
    epoch_s: float = 0.15
    folds: int = 0
    nodes: int = 0
    postgres: bool = False
    store: bool = False
    disks: bool = False
    clock: bool = False
    island: bool = False
    members: tuple[str, ...] = ()
    openings: int = 0

    def searches(self, name: str) -> tuple[str, ...]:
        """Return the names of the searches of a scenario called ``name``."""
        return tuple(f"{name}-{member}" for member in self.members) or (name,)


OF_DRIVER = ("driver killed", "driver ended", "driver stopped")
OF_TRAINER = ("trainer killed", "trainer ended", "trainer stopped")
OF_RAY = ("raylet killed", "raylet stopped", "GCS killed", "GCS stopped")
OF_SERVICES = ("MLflow killed", "MLflow stopped", "PostgreSQL killed", "PostgreSQL restarted", "PostgreSQL stopped")


def sleeping(trials: int, epochs: int, **search: Any) -> Content:
    """Return a search of sleeping trainings; its proposals depend on the trial number unless ``search`` differs."""

    def content(name: str, _: Path) -> dict[str, Any]:
        return {
            "name": name,
            "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 4},
            "training": {"epochs": epochs, "batch_size": 8, "images_per_class": 2},
            "losses": ["mpa"],
            "search": {"trials": trials, "pruner": "none", "sampler": "random", **search},
            "stages": ["search"],
            "resources": {"engine": ENGINE},
        }

    return content


def _training(trials: int, epochs: int) -> Content:
    def content(name: str, images: Path) -> dict[str, Any]:
        made = small_search(images if images.exists() else draw_folder(images, images=24))
        made |= {"name": name, "losses": ["proxy_anchor"]}
        made["search"] = {"trials": trials, "pruner": "none", "sampler": "random"}
        made["training"] |= {"epochs": epochs}
        made |= {"selection": {"finalists": 1, "seeds": 1}, "final": {"seeds": 1}, "resources": {"engine": "ray"}}
        return made

    return content


def _campaign(trials: int, epochs: int, folds: int) -> Content:
    def content(name: str, images: Path) -> dict[str, Any]:
        base = _training(trials, epochs)(name, images)
        del base["name"]
        base |= {"split": {"folds": folds}}
        base["training"] |= {"batch_size": 10}
        samplers = {"random": {"search.sampler": "random"}, "qmc": {"search.sampler": "qmc"}}
        table = {"rows": ["sampler"], "metrics": ["validation", "recall_at_1"]}
        return {"name": name, "study": "two samplers", "base": base, "vary": {"sampler": samplers}, "table": table}

    return content


_TRAININGS = Scenario(
    name="trainings",  # real ones, to the test
    content=_training(6, 20),
    faults=("driver killed", "trainer killed", "trainer stopped", "runs full", "cache full"),
    losses=("proxy_anchor",),
    trials=6,
    epochs=20,
    nodes=1,
    disks=True,
    openings=1,
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="alone",  # each driver has a Ray of its own
            content=sleeping(20, 15),
            faults=(*OF_DRIVER, *OF_TRAINER, *OF_RAY),
            losses=("mpa",),
            trials=20,
            epochs=15,
        ),
        Scenario(
            name="model-based",  # proposals depend on all trials before: the same for one slot
            content=sleeping(12, 15, sampler="tpe", max_concurrent=1),
            faults=(*OF_DRIVER, *OF_TRAINER),
            losses=("mpa",),
            trials=12,
            epochs=15,
            nodes=1,
        ),
        Scenario(
            name="cluster",
            content=sleeping(24, 15),
            faults=(*OF_DRIVER, *OF_TRAINER, "node killed", "node stopped", "head killed", "GCS stopped"),
            losses=("mpa",),
            trials=24,
            epochs=15,
            nodes=2,
        ),
        Scenario(
            name="services",
            content=sleeping(24, 15),
            faults=(*OF_SERVICES, "driver killed", "driver stopped", "trainer killed"),
            losses=("mpa",),
            trials=24,
            epochs=15,
            nodes=1,
            postgres=True,
        ),
        Scenario(
            name="clock",
            content=sleeping(20, 15),
            faults=("clock ahead", "clock back", "driver killed", "trainer killed"),
            losses=("mpa",),
            trials=20,
            epochs=15,
            nodes=1,
            clock=True,
        ),
        Scenario(
            name="island",  # one node behind a cable
            content=sleeping(24, 15),
            faults=("cable pulled", "cable long pulled", "driver killed", "trainer killed"),
            losses=("mpa",),
            trials=24,
            epochs=15,
            nodes=1,
            island=True,
        ),
        _TRAININGS,
        replace(
            _TRAININGS,
            name="store",  # whose checkpoints lie elsewhere
            faults=("driver killed", "trainer killed", "store refuses", "store lags", "store gives half"),
            disks=False,
            store=True,
        ),
        Scenario(
            name="campaign",
            content=_campaign(3, 10, 2),
            faults=("driver killed", "driver ended", "trainer killed", "trainer ended"),
            losses=("proxy_anchor",),
            trials=3,
            epochs=10,
            folds=2,
            nodes=1,
            members=("random", "qmc"),
            openings=1,
        ),
    )
}
