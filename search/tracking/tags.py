"""The tags by which MLflow's runs are found again and told apart, and those that MLflow itself reads."""

from functools import cache
from pathlib import Path

KIND, CAMPAIGN, SEARCH, LOSS, STAGE, TRIAL = (
    f"holdout.{name}" for name in ("kind", "campaign", "search", "loss", "stage", "trial")
)
FILES = "holdout.files"
"""SHA-256 of the artifacts of a run that sums up others."""
MODEL = "holdout.model"
"""SHA-256 of a logged model's description, which has that of its weights."""
LOGGED_MODEL = "holdout.logged_model"
"""The id of the logged model that a version of a registered model is of."""
VERSIONS = "mlflow.modelVersions"
"""The versions that a logged model is registered as, in JSON."""
NAME, NOTE, PARENT, DATA_CONTEXT = "mlflow.runName", "mlflow.note.content", "mlflow.parentRunId", "mlflow.data.context"


@cache
def origin_tags() -> dict[str, str]:
    """Who writes, with which program and of which commit, where it runs from a checkout: MLflow's User and Source."""
    from mlflow.tracking.context.registry import resolve_tags
    from mlflow.utils.git_utils import get_git_commit

    commit = get_git_commit(str(Path(__file__).parent))
    return {
        "mlflow.user": resolve_tags()["mlflow.user"],
        "mlflow.source.name": "holdout",
        "mlflow.source.type": "LOCAL",
        **({"mlflow.source.git.commit": commit} if commit else {}),
    }
