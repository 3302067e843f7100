"""Private parts of Ray, Optuna and MLflow that Holdout uses: where, and the versions they were tested with.

The upper bounds of these libraries in ``pyproject.toml`` are those of ``TESTED``; ``tests/test_private_parts.py`` finds
every part in the installed versions.
"""

from collections.abc import Mapping
from importlib.metadata import version
from types import MappingProxyType

from packaging.specifiers import SpecifierSet

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


def untested(library: str) -> str | None:
    """Return a sentence if the installed version of ``library`` is not one of those tested; nothing is imported."""
    found = version(library)
    if SpecifierSet(TESTED[library]).contains(found, prereleases=True):
        return None
    return (
        f"{library} {found} is installed, and Holdout's use of its private parts was tested with "
        f"{library}{TESTED[library]}."
    )
