"""User-defined trainings with scikit-learn, PyTorch Lightning or sentence-transformers, imported when used.

Each calls ``function(params, train, report)``, a method or what :func:`trainable` decorates, for the library's own
objects, and trains these.
"""

import copy
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import numpy as np
import torch

from trainables.errors import InvalidInput, counted
from trainables.models.embedding import merged
from trainables.training.trainable import Items, RepeatedTrainable, Report, Trainable, seed_epoch


class EstimatorTrainable(RepeatedTrainable):
    """An estimator of scikit-learn, or anything with ``fit`` and one of ``transform``, ``predict_proba``.

    ``function`` returns it; ``report.seed`` is for its ``random_state``. An epoch is a fit to the training items and
    their labels, so ``training.epochs`` is 1. The estimator is fitted again where another training would be loaded: it
    is never pickled.
    """

    function: ClassVar[Callable[..., Any]]

    def setup(self, params: Mapping[str, Any], train: Items, *, seed: int, device: torch.device) -> None:
        super().setup(params, train, seed=seed, device=device)
        self._estimator = self.function(params, train, Report(epochs=self.epochs, seed=seed, device=device))

    def train_epoch(self) -> None:
        self._estimator.fit(self.train.items, self.train.labels)
        self.epoch += 1

    def embed(self, items: Any) -> Any:
        """Transform the items; without such a method, return the probabilities of the training classes."""
        transform = getattr(self._estimator, "transform", None) or self._estimator.predict_proba
        found = transform(items)
        return found.toarray() if hasattr(found, "toarray") else np.asarray(found)  # sparse matrices


class _Fit(Trainable):
    """A training that is one call of its library, in a thread that waits between its epochs.

    A resumed one continues from the library's own checkpoint.
    """

    function: ClassVar[Callable[..., Any]]

    def setup(self, params: Mapping[str, Any], train: Items, *, seed: int, device: torch.device) -> None:
        self._report = Report(epochs=self.epochs, seed=seed, device=device)
        self._folder = tempfile.TemporaryDirectory(prefix="holdout-fit-")
        self._checkpoint = Path(self._folder.name) / "last"
        self._epoch = 0
        self._thread: Thread | None = None
        self._made = self.function(params, train, self._report)

    def _fit(self) -> None:
        """Train, from the checkpoint if there is one; call ``self._report`` in each epoch, after its checkpoint."""
        raise NotImplementedError

    def train_epoch(self) -> Mapping[str, float]:
        """Let the library train until the end of the next epoch."""
        if self._thread is None:
            self._thread = Thread(target=self._report.run, args=(self._fit,), daemon=True)
            self._thread.start()
        found = self._report.next()
        if found is None:
            raise InvalidInput(
                f"The library ended the fit after {counted(self._epoch, 'epoch')}, and training.epochs is "
                f"{self.epochs}; remove what ends it early, such as EarlyStopping or max_steps: search.pruner ends bad "
                "trials."
            )
        self._epoch += 1
        return found[1]

    def save(self, folder: Path) -> None:
        """Write the number of epochs; subclasses add the checkpoint."""
        (folder / "epochs.txt").write_text(str(self._epoch))

    def load(self, folder: Path) -> None:
        self._epoch = int((folder / "epochs.txt").read_text())

    def finish(self) -> None:
        """End the fit, and remove the temporary folder."""
        self._report.end()
        if self._thread is not None:
            self._thread.join()
        self._folder.cleanup()


class LightningTrainable(_Fit):
    """A ``LightningModule`` as a training; one device, without Lightning's own logger, checkpoints and validation.

    ``function`` returns the module, whose ``forward`` maps a batch of items to embeddings, and the ``DataLoader`` of
    the training items. The whole training is one ``Trainer.fit``. Lightning's checkpoint holds no hyperparameters of
    the module: ``function`` gives them. What the module logs is recorded, its entry ``loss`` or ``train_loss`` as the
    loss.
    """

    trainer_options: ClassVar[Mapping[str, Any]] = {}

    def setup(self, params: Mapping[str, Any], train: Items, *, seed: int, device: torch.device) -> None:
        super().setup(params, train, seed=seed, device=device)
        self._module, self._data = self._made
        logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # it describes the machine

    def _fit(self) -> None:
        """Fit the module, and report each epoch: all but the last one when the next one begins."""
        from lightning.pytorch import Callback, Trainer

        checkpoint, begun, report = self._checkpoint, self._epoch, self._report

        class Epochs(Callback):
            # Lightning resumes from the end of an epoch, but updates schedulers that watch a metric only after it. So
            # this saves at the next beginning, with the loops as they were at the end.
            loops: ClassVar[dict[str, Any]] = {}
            saves = False

            def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
                if trainer.current_epoch > begun:
                    self.save(trainer)
                    report(pl_module, **_logged(trainer))

            def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                self.loops["fit_loop"] = copy.deepcopy(trainer.fit_loop.state_dict())

            def on_train_end(self, trainer: Any, pl_module: Any) -> None:
                self.save(trainer)

            def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
                if self.saves:
                    checkpoint["loops"] |= self.loops
                    for name in ("KEY", "NAME", "TYPE"):
                        checkpoint.pop(getattr(pl_module, f"CHECKPOINT_HYPER_PARAMS_{name}"), None)

            def save(self, trainer: Any) -> None:
                self.saves = True
                trainer.save_checkpoint(checkpoint)
                self.saves = False

        options = dict(self.trainer_options)
        trainer = Trainer(
            max_epochs=self.epochs,
            accelerator="gpu" if report.device.type == "cuda" else "cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            default_root_dir=self._folder.name,
            callbacks=[*options.pop("callbacks", ()), Epochs()],
            **options,
        )
        last = str(checkpoint) if begun else None
        trainer.fit(self._module, self._data, ckpt_path=last, weights_only=True if last else None)
        report(self._module, **_logged(trainer))

    def embed(self, items: Any) -> torch.Tensor:
        """Return the module's output for ``items``, in evaluation mode."""
        modes = [(part, part.training) for part in self._module.modules()]
        found: torch.Tensor = self._module.to(self._report.device).eval()(items)
        for part, training in modes:
            part.training = training
        return found

    def save(self, folder: Path) -> None:
        super().save(folder)
        shutil.copy(self._checkpoint, folder / "last.ckpt")

    def load(self, folder: Path) -> None:
        super().load(folder)
        shutil.copy(folder / "last.ckpt", self._checkpoint)
        state = torch.load(self._checkpoint, map_location="cpu", weights_only=True)
        self._module.load_state_dict(state["state_dict"])


def _logged(trainer: Any) -> dict[str, float]:
    """Return the numbers that the module of a Lightning trainer has logged."""
    numbers = {name: float(value) for name, value in trainer.callback_metrics.items()}
    if "train_loss" in numbers:
        numbers.setdefault("loss", numbers.pop("train_loss"))
    return numbers


class SentenceTransformerTrainable(_Fit):
    """A ``SentenceTransformerTrainer`` as a training, with its loss, schedule, precision and batches.

    ``function`` returns it. Epochs, seed, checkpoints and logs of its arguments are set here. The saved folder
    ``model`` is what ``SentenceTransformer(…)`` loads; adapters of peft are merged in it.
    """

    def _fit(self) -> None:
        from transformers import PrinterCallback, ProgressCallback, TrainerCallback

        training, trainer, report = self, self._made, self._report

        class Epochs(TrainerCallback):
            def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                seed_epoch(report.seed, training._epoch + 1)  # resuming draws numbers, too

            def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                training._checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
                batches = state.global_step // (training._epoch + 1)
                report(trainer.model.encode, loss=state.log_history[-1]["loss"], batches=batches)

        vars(trainer.args).update(
            num_train_epochs=self.epochs, seed=report.seed, dataloader_pin_memory=report.device.type == "cuda",
            output_dir=self._folder.name, save_strategy="epoch", save_total_limit=1,
            logging_strategy="epoch", logging_nan_inf_filter=False,
        )  # fmt: skip
        for callback in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(callback)
        trainer.add_callback(Epochs())
        # The weights are saved and loaded here: the library would load adapters of peft from their base's address. The
        # second method is private; pyproject.toml bounds the version.
        trainer.save_model = lambda folder, **_: Path(folder).mkdir()
        trainer._load_from_checkpoint = lambda folder: None
        trainer.train(resume_from_checkpoint=str(self._checkpoint) if self._epoch else None)

    @property
    def _weights(self) -> torch.nn.Module:
        return torch.nn.ModuleList([self._made.model, self._made.loss])

    def embed(self, items: Any) -> torch.Tensor:
        return _encoded(self._made.model, items)

    @classmethod
    def predictor(cls, folder: Path, params: Mapping[str, Any], *, device: torch.device) -> Callable[[Any], Any]:
        """Return the saved model's function that encodes texts and images."""
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(folder / "model"), device=str(device), local_files_only=True)
        return lambda items: _encoded(model, items)

    def save(self, folder: Path) -> None:
        """Write the model as its library does, and the state of the training."""
        super().save(folder)
        whole: Any = merged(self._made.model)
        whole.save_pretrained(str(folder / "model"), create_model_card=False)
        torch.save(self._weights.state_dict(), folder / "weights.pt")
        shutil.copytree(self._checkpoint, folder / "trainer", ignore=shutil.ignore_patterns("rng_state*"))

    def load(self, folder: Path) -> None:
        """Load the weights, and the state from which the training resumes."""
        super().load(folder)
        shutil.copytree(folder / "trainer", self._checkpoint)
        self._weights.load_state_dict(torch.load(folder / "weights.pt", map_location="cpu", weights_only=True))


def _encoded(model: Any, items: Any) -> torch.Tensor:
    """Encode texts and images, which the library does not mix in one call; rows are in the order of the items."""
    kinds_N = torch.tensor([isinstance(item, str) for item in items])
    parts = [
        model.encode([items[row] for row in rows_M], convert_to_tensor=True, show_progress_bar=False)
        for rows_M in (kinds_N.nonzero()[:, 0], (~kinds_N).nonzero()[:, 0])
        if len(rows_M)
    ]
    return torch.cat(parts)[kinds_N.int().argsort(descending=True, stable=True).argsort()]
