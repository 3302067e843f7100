"""A copy of a finished search in which a test changes a single thing."""

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from optuna.trial import FrozenTrial
from support.commands import holdout_here, plain
from support.journals import CREATE_STUDY, Operation, drop_trial, of_trial, rewritten, trials_in

from search.records.ledger import NAME


class Copied:
    """A copy of a search's runs folder, with methods that change its records."""

    def __init__(self, origin: Path, runs: Path, name: str = "small") -> None:
        shutil.copytree(origin, runs, ignore=shutil.ignore_patterns("trials"))
        for trials in origin.glob("*/trials"):  # large files are hard links; :meth:`write` replaces them
            shutil.copytree(trials, runs / trials.relative_to(origin), copy_function=os.link)
        self.runs, self.path, self.name = runs, runs / name, name

    def member(self, name: str) -> "Copied":
        """Return itself, to change another search of the runs folder."""
        self.path, self.name = self.runs / name, name
        return self

    @property
    def journal(self) -> Path:
        return self.path / "study.journal"

    def trials(self, study: str) -> list[FrozenTrial]:
        return trials_in(self.journal, f"{self.name}/{study}")

    def state(self, study: str, state: str) -> int:
        """Return the number of the last trial of a study in ``state``."""
        return max(trial.number for trial in self.trials(study) if trial.state.name == state)

    def trial(self, study: str, number: int, code: int, change: Callable[[Operation], object]) -> None:
        with rewritten(self.journal) as found:
            change([entry for entry in of_trial(found, f"{self.name}/{study}", number) if entry["op_code"] == code][-1])

    def param(self, study: str, number: int, name: str, change: Callable[[Operation], object]) -> None:
        with rewritten(self.journal) as found:
            lines = of_trial(found, f"{self.name}/{study}", number)
            change(next(entry for entry in lines if entry.get("param_name") == name))

    def attribute(self, study: str, number: int, key: str, change: Callable[[Any], Any]) -> None:
        with rewritten(self.journal) as found:
            created, *later = of_trial(found, f"{self.name}/{study}", number)
            places = [created.get("user_attrs", {}), *(entry["user_attr"] for entry in later if "user_attr" in entry)]
            place = [place for place in places if key in place][-1]
            place[key] = change(place[key])

    def epoch(self, study: str, number: int, epoch: int, **changes: Any) -> None:
        self.attribute(study, number, f"epoch:{epoch:06d}", lambda record: {**record, **changes})

    def metric(self, study: str, number: int, epoch: int, name: str, value: float) -> None:
        key = f"epoch:{epoch:06d}"
        self.attribute(study, number, key, lambda record: {**record, "metrics": {**record["metrics"], name: value}})

    def study_attribute(self, study: str, key: str, value: Any) -> None:
        with rewritten(self.journal) as found:
            names = [entry["study_name"] for entry in found if entry["op_code"] == CREATE_STUDY]
            of_key = [entry for entry in found if "study_id" in entry and key in entry.get("user_attr", {})]
            of_study = [entry for entry in of_key if names[entry["study_id"]] == f"{self.name}/{study}"]
            of_study[-1]["user_attr"] = {key: value}

    def drop(self, study: str, number: int) -> None:
        with rewritten(self.journal) as found:
            drop_trial(found, f"{self.name}/{study}", number)

    def json(self, file: str, change: Callable[[Any], object]) -> None:
        path = self.path / file
        content = json.loads(path.read_text())
        before = json.dumps(content)
        change(content)
        assert json.dumps(content) != before
        self.write(path, json.dumps(content, indent=2).encode())

    def text(self, file: str, before: str, after: str) -> None:
        path = self.path / file
        text = path.read_text()
        assert before in text, text
        path.write_text(text.replace(before, after, 1))

    def search_file(self, change: Callable[[Any], object]) -> None:
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
        return sorted(self.path.glob("test/*/*@final-*.npz"))

    @property
    def opened_images(self) -> Path:
        (path,) = self.runs.glob("test_openings.images/*")
        return path

    @property
    def models(self) -> list[Path]:
        return sorted(self.path.glob("trials/*@final/**/best.safetensors"))

    @property
    def rankings(self) -> list[Path]:
        return sorted(self.path.glob("test/*/retrieval/*.npz"))

    @property
    def thumbnails(self) -> Path:
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


Change = Callable[[Copied], object]


def entry(file: str, path: str, value: Any) -> Change:
    """Change an entry of a JSON file or the search file, found by its keys; a function makes it of the one before."""

    def change(copied: Copied) -> None:
        def changed(content: Any) -> None:
            *above, last = [int(key) if key.isdigit() else key for key in path.split("/")]
            for key in above:
                content = content[key]
            content[last] = value(content[last]) if callable(value) else value

        copied.search_file(changed) if file == "search.yaml" else copied.json(file, changed)

    return change


def array(name: str, index: Any, change: Any, path: Callable[[Copied], Path] | None = None) -> Change:
    """Change a number in an array of the first results, or of another file."""

    def changed(arrays: dict[str, Any]) -> None:
        arrays[name][index] = change(arrays[name][index]) if callable(change) else change

    return lambda copied: copied.arrays(changed, path(copied) if path else None)


def trial(study: str, number: int | str, code: int, **changes: Any) -> Change:
    """Change the last operation with this code of a trial, given by its number or its state."""

    def change(copied: Copied) -> None:
        found = number if isinstance(number, int) else copied.state(study, number)
        copied.trial(study, found, code, lambda entry: entry.update(changes))

    return change


def epoch(study: str, number: int, epoch: int, **changes: Any) -> Change:
    return lambda copied: copied.epoch(study, number, epoch, **changes)


def attribute(study: str, number: int, key: str, change: Callable[[Any], Any]) -> Change:
    return lambda copied: copied.attribute(study, number, key, change)


def ledger(change: Callable[[list[str]], list[str]]) -> Change:
    def changed(copied: Copied) -> None:
        path = copied.runs / NAME
        path.write_text("".join(f"{line}\n" for line in change(path.read_text().splitlines())))

    return changed


def verified(runs: Path, *more: str, code: int = 0, name: str = "small") -> str:
    """Run `holdout verify` and return its output on both streams."""
    done = holdout_here("verify", name, "--runs", runs, *more, code=code)
    return done.stdout + plain(done.stderr)
