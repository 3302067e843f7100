"""Private parts of Ray, Optuna and MLflow that Holdout uses: where, and the versions they were tested with.

The upper bounds of these libraries in ``pyproject.toml`` are those of ``TESTED``; ``tests/test_private_parts.py`` finds
every part in the installed versions.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

from packaging.specifiers import SpecifierSet

from trainables.errors import Failure

TESTED: Mapping[str, str] = MappingProxyType({"ray": ">=2.60,<2.61", "optuna": ">=5.0,<6", "mlflow": ">=3.17,<4"})

PARTS: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "ray": {
            "search/engines/ray_private.py": (
                "ray.tune.execution.tune_controller:RayActorManager",
                "ray.tune.execution.tune_controller:TuneController._cleanup_cached_actors",
                "ray.tune.execution.tune_controller:TuneController()._actor_manager",
                "ray.tune.execution.tune_controller:TuneController()._trial_to_actor",
                "ray.air.execution._internal:RayActorManager._actor_task_failed",
                "ray.air.execution._internal:RayActorManager()._live_actors_to_ray_actors_resources",
                "ray.tune.experiment:Trial.pickled_error_file",
                "ray._private.state:actors",
                "ray._private.state:state._connect_and_get_accessor",
                "ray._private.state:state.get_draining_nodes",
            )
        },
        "optuna": {
            "search/study/study.py": ("optuna:Study._get_trials", "optuna:Study()._directions"),
            "search/driver/verify/studies.py": ("optuna.distributions:BaseDistribution._contains",),
        },
        "mlflow": {
            "search/tracking/client.py": ("mlflow.store.tracking.sqlalchemy_store:SqlAlchemyStore",),
            "search/tracking/summary_runs.py": (
                "mlflow.tracking.context.registry:resolve_tags",
                "mlflow.utils.git_utils:get_git_commit",
            ),
        },
    }
)
"""By library and by our module: ``module:name``; ``Class().name`` is an attribute that the constructor sets."""


def check_private_parts(library: str) -> None:
    """Check that the installed ``library`` has every private part that is used.

    Raises:
        Failure: a part is missing; the sentence names it, the installed version and the versions to install.
    """
    for part in missing_parts(library):
        raise Failure(
            f"Holdout uses {part}, which {library} {version(library)} does not have: install "
            f"{library}{TESTED[library]}, for example the version in constraints.txt."
        )


def missing_parts(library: str) -> Iterator[str]:
    """Yield the private parts that the installed ``library`` does not have; imports what they are in."""
    for parts in PARTS[library].values():
        yield from (part for part in parts if not _is_there(part))


def untested(library: str) -> str | None:
    """Return a sentence if the installed version of ``library`` is not one of those tested; nothing is imported."""
    found = version(library)
    if SpecifierSet(TESTED[library]).contains(found, prereleases=True):
        return None
    return (
        f"{library} {found} is installed, and Holdout's use of its private parts was tested with "
        f"{library}{TESTED[library]}."
    )


def _is_there(part: str) -> bool:
    module, _, path = part.partition(":")
    try:
        owner: Any = import_module(module)
    except ImportError:
        return False
    *owners, name = path.split(".")
    for entry in owners:
        owner = getattr(owner, entry.removesuffix("()"), None)
        if entry.endswith("()"):
            return owner is not None and name in owner.__init__.__code__.co_names
    return hasattr(owner, name)
