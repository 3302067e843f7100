"""Bringing a run that sums up others up to date: what it shows already is not written again."""

import hashlib
import json
from typing import TYPE_CHECKING, Any

from search.tracking.described import DescribedData, SummaryRun
from search.tracking.tags import DATA_CONTEXT, FILES, NOTE

if TYPE_CHECKING:
    from mlflow import MlflowClient

TAG_LENGTH = 5000
DIGEST_LENGTH = 12
"""Of the split's digest, as the command line shows it; MLflow holds 36 characters at most."""


def bring_up_to_date(client: "MlflowClient", run_id: str, wanted: SummaryRun, now: int) -> None:
    """Write what the run ``run_id`` does not show yet of ``wanted``; ``now`` in milliseconds since 1970."""
    from mlflow.entities import Metric, Param, RunTag

    data = client.get_run(run_id).data
    tags = {**wanted.tags, **({NOTE: wanted.description} if wanted.description else {})}
    digest = _digest_of_files(wanted)
    if digest and data.tags.get(FILES) != digest:
        for name, text in wanted.texts.items():
            client.log_text(run_id, text, name)
        for path in wanted.files:
            client.log_artifact(run_id, str(path))
        tags[FILES] = digest
    new: dict[str, list[Any]] = {
        "metrics": [
            Metric(name, value, now, 0) for name, value in wanted.metrics.items() if data.metrics.get(name) != value
        ],
        "params": [Param(name, str(value)) for name, value in wanted.params.items() if name not in data.params],
        "tags": [
            RunTag(name, value) for name, text in tags.items() if data.tags.get(name) != (value := text[:TAG_LENGTH])
        ],
    }
    if any(new.values()):
        client.log_batch(run_id, **new)


def finish(client: "MlflowClient", run_id: str, end: int) -> None:
    """End the run at ``end``, in milliseconds since 1970, unless it ended then."""
    info = client.get_run(run_id).info
    if (info.status, info.end_time) != ("FINISHED", end):
        client.set_terminated(run_id, "FINISHED", end)


def log_data(client: "MlflowClient", run_id: str, data: DescribedData) -> None:
    """Say which images the run trains on; said again, MLflow writes nothing."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    kind, source = ("local", {"uri": data.root}) if data.root else ("code", {"tags": {"mlflow.source.name": data.name}})
    dataset = Dataset(
        name=data.name,
        digest=data.digest[:DIGEST_LENGTH],
        source_type=kind,
        source=json.dumps(source),
        profile=json.dumps(data.classes),
    )
    client.log_inputs(run_id, [DatasetInput(dataset, [InputTag(DATA_CONTEXT, "train")])])


def _digest_of_files(run: SummaryRun) -> str | None:
    """SHA-256 of all artifacts with their names; None without any."""
    contents = {path.name: path.read_bytes() for path in run.files}
    contents |= {name: text.encode() for name, text in run.texts.items()}
    if not contents:
        return None
    found = hashlib.sha256()
    for name, content in sorted(contents.items()):
        found.update(f"{name}:{len(content)}:".encode() + content)
    return found.hexdigest()
