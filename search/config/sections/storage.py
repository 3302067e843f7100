"""The ``checkpoints`` and ``tracking`` sections: where models and records go."""

from typing import Annotated

from fsspec import available_protocols
from pydantic import Field, field_validator

from search.config.secrets import without_a_password
from search.config.sections.section import Address, Section
from trainables.mistakes import Mistakes


class CheckpointsSection(Section):
    """Where trials keep their models, and how much the search trials' best ones may take.

    ``storage_path`` is a path, or a URL that fsspec knows, such as ``s3://bucket/holdout``; by default the runs folder.
    """

    storage_path: Annotated[str, Field(min_length=1)] | None = None
    max_gb: float | None = Field(default=None, gt=0)

    @field_validator("storage_path")
    @classmethod
    def _reachable(cls, storage_path: str | None) -> str | None:
        if storage_path is None:
            return None
        scheme, separator, rest = storage_path.partition("://")
        if not separator and not storage_path.startswith("/"):
            raise ValueError("must be a whole path, or a URL such as s3://bucket/folder")
        if "@" in rest.partition("/")[0]:
            raise Mistakes("it names a user; leave that out, its library finds user and password (see CLUSTER.md).")
        without_a_password(storage_path)
        if separator and scheme not in available_protocols():
            raise ValueError(f"fsspec knows no {scheme}://, but s3://, gs://, abfs://, sftp:// and others")
        return storage_path


class TrackingSection(Section):
    """The MLflow server and experiment; by default ``<runs>/mlflow.db`` and the search's name.

    With ``register`` the chosen models are registered there, under the search's name.
    """

    uri: Address | None = None
    experiment: Annotated[str, Field(min_length=1)] | None = None
    register_models: bool = Field(default=False, alias="register")
