"""A copy of a finished search in which a test changes a single thing."""

import io
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml


class Copied:
    """A copy of a search's runs folder, with methods that change its records."""

    def __init__(self, origin: Path, runs: Path, name: str = "small") -> None:
        shutil.copytree(origin, runs, ignore=shutil.ignore_patterns("trials"))
        for trials in origin.glob("*/trials"):  # large files are hard links; :meth:`write` replaces them
            shutil.copytree(trials, runs / trials.relative_to(origin), copy_function=os.link)
        self.runs, self.path, self.name = runs, runs / name, name

    def sql(self, statement: str, *values: Any) -> None:
        """Run a statement on the study database, which must change a row."""
        with sqlite3.connect(self.path / "study.db") as database:
            assert database.execute(statement, values).rowcount > 0, statement
        database.close()

    def ask(self, statement: str, *values: Any) -> Any:
        """Return the first row of a query."""
        with sqlite3.connect(self.path / "study.db") as database:
            found = database.execute(statement, values).fetchone()
        database.close()
        return found

    def trial(self, study: str, number: int) -> int:
        """Return the row id of a trial."""
        found = self.ask(
            "SELECT trial_id FROM trials JOIN studies USING (study_id) WHERE study_name = ? AND number = ?",
            f"{self.name}/{study}",
            number,
        )
        return int(found[0])

    def last(self, study: str) -> int:
        """Return the highest trial number of a study."""
        found = self.ask(
            "SELECT max(number) FROM trials JOIN studies USING (study_id) WHERE study_name = ?", f"{self.name}/{study}"
        )
        return int(found[0])

    def state(self, study: str, state: str) -> int:
        """Return the number of the last trial of a study in ``state``."""
        found = self.ask(
            "SELECT max(number) FROM trials JOIN studies USING (study_id) WHERE study_name = ? AND state = ?",
            f"{self.name}/{study}",
            state,
        )
        return int(found[0])

    def attribute(self, study: str, number: int, key: str, change: Callable[[Any], Any]) -> None:
        """Change a user attribute of a trial."""
        where = "FROM trial_user_attributes WHERE trial_id = ? AND key = ?"
        trial = self.trial(study, number)
        before = json.loads(self.ask(f"SELECT value_json {where}", trial, key)[0])
        after = json.dumps(change(before))
        assert after != json.dumps(before)
        self.sql("UPDATE trial_user_attributes SET value_json = ? WHERE trial_id = ? AND key = ?", after, trial, key)

    def epoch(self, study: str, number: int, epoch: int, **changes: Any) -> None:
        """Change the record of an epoch."""
        self.attribute(study, number, f"epoch:{epoch:06d}", lambda record: {**record, **changes})

    def metric(self, study: str, number: int, epoch: int, name: str, value: float) -> None:
        """Change a metric of an epoch."""
        key = f"epoch:{epoch:06d}"
        self.attribute(study, number, key, lambda record: {**record, "metrics": {**record["metrics"], name: value}})

    def study_attribute(self, study: str, key: str, value: Any) -> None:
        """Change a user attribute of a study."""
        (row,) = self.ask("SELECT study_id FROM studies WHERE study_name = ?", f"{self.name}/{study}")
        text = json.dumps(value)
        self.sql("UPDATE study_user_attributes SET value_json = ? WHERE study_id = ? AND key = ?", text, row, key)

    def drop(self, study: str, number: int) -> None:
        """Remove a trial."""
        trial = self.trial(study, number)
        self.sql("DELETE FROM trials WHERE trial_id = ?", trial)

    def json(self, file: str, change: Callable[[Any], object]) -> None:
        """Change a JSON file in place."""
        path = self.path / file
        content = json.loads(path.read_text())
        before = json.dumps(content)
        change(content)
        assert json.dumps(content) != before
        path.write_text(json.dumps(content, indent=2))

    def text(self, file: str, before: str, after: str) -> None:
        """Replace a piece of a text file."""
        path = self.path / file
        text = path.read_text()
        assert before in text, text
        path.write_text(text.replace(before, after, 1))

    def search_file(self, change: Callable[[Any], object]) -> None:
        """Change the search file."""
        path = self.path / "search.yaml"
        content = yaml.safe_load(path.read_text())
        before = repr(content)
        change(content)
        assert repr(content) != before
        path.write_text(yaml.safe_dump(content, sort_keys=False))

    def write(self, path: Path, content: bytes) -> None:
        """Replace a file that may be a hard link to the original."""
        path.unlink()
        path.write_bytes(content)

    @property
    def results(self) -> list[Path]:
        """The files of per-image results."""
        return sorted(self.path.glob("test/*/*@final-*.npz"))

    @property
    def opened_images(self) -> Path:
        """The file of the images that were opened."""
        (path,) = self.runs.glob("test_openings.images/*")
        return path

    @property
    def models(self) -> list[Path]:
        """The scored models."""
        return sorted(self.path.glob("trials/*@final/**/best.safetensors"))

    @property
    def rankings(self) -> list[Path]:
        """The files of stored neighbours."""
        return sorted(self.path.glob("test/*/retrieval/*.npz"))

    @property
    def thumbnails(self) -> Path:
        """The file of thumbnails."""
        (path,) = self.path.glob("test/*/thumbnails.npz")
        return path

    def arrays(self, change: Callable[[dict[str, Any]], object], path: Path | None = None) -> None:
        """Change the arrays of the first results, or of another file."""
        path = path or self.results[0]
        with np.load(path) as stored:
            arrays = dict(stored)
        change(arrays)
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        self.write(path, content.getvalue())

    def swap(self, first: Path, second: Path) -> None:
        """Swap the contents of two files."""
        contents = first.read_bytes(), second.read_bytes()
        assert contents[0] != contents[1]
        self.write(first, contents[1])
        self.write(second, contents[0])
