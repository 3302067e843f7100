"""User-defined trainings with scikit-learn, PyTorch Lightning or sentence-transformers, imported when used."""

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

from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.errors import InvalidInput, counted
from trainables.training.trainable import Items, RepeatedTrainable, Report, Trainable


class EstimatorTrainable(RepeatedTrainable):
    """An estimator of scikit-learn, or anything with ``fit`` and one of ``transform``, ``predict_proba``.

    An epoch is a fit to the training items and their labels, so ``training.epochs`` is 1. The estimator is fitted again
    where another training would be loaded: it is never pickled.
    """

    def estimator(self, params: Mapping[str, Any], *, seed: int) -> Any:
        """Return the estimator with these params; ``seed`` is for its ``random_state``."""
        raise NotImplementedError

    def setup(self, params: Mapping[str, Any], train: Items, *, seed: int, device: "torch.device") -> None:
        """Make the estimator."""
        super().setup(params, train, seed=seed, device=device)
        self._estimator = self.estimator(params, seed=seed)

    def train_epoch(self) -> None:
        """Fit the estimator."""
        self._estimator.fit(self.train.items, self.train.labels)
        self.epoch += 1

    def embed(self, items: Any) -> Any:
        """Transform the items; without such a method, return the probabilities of the training classes."""
        transform = getattr(self._estimator, "transform", None) or self._estimator.predict_proba
        found = transform(items)
        return found.toarray() if hasattr(found, "toarray") else np.asarray(found)  # sparse matrices


class LightningTrainable(Trainable):
    """A ``LightningModule`` as a training; one device, without Lightning's own logger, checkpoints and validation.

    The whole training is one ``Trainer.fit``, in a thread that waits between its epochs; a resumed one continues from
    Lightning's checkpoint, which holds no hyperparameters of the module: :meth:`module` gives them. What the module
    logs is recorded, its entry ``loss`` or ``train_loss`` as the loss.
    """

    trainer_options: ClassVar[Mapping[str, Any]] = {}

    def module(self, params: Mapping[str, Any], train: Items) -> Any:
        """Return the ``LightningModule``; its ``forward`` maps a batch of items to embeddings."""
        raise NotImplementedError

    def data(self, params: Mapping[str, Any], train: Items) -> Any:
        """Return the ``DataLoader`` of the training items."""
        raise NotImplementedError

    def setup(self, params: Mapping[str, Any], train: Items, *, seed: int, device: torch.device) -> None:
        """Make the module and its data."""
        self._module, self._data, self._device = self.module(params, train), self.data(params, train), device
        logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # it describes the machine
        self._folder = tempfile.TemporaryDirectory(prefix="holdout-lightning-")
        self._checkpoint = Path(self._folder.name) / "last.ckpt"
        self._epoch = 0
        self._report = Report(epochs=self.epochs, seed=seed, device=device)
        self._thread: Thread | None = None

    def train_epoch(self) -> Mapping[str, float]:
        """Let the fit run until the end of the next epoch."""
        if self._thread is None:
            self._thread = Thread(target=self._report.run, args=(self._fit,), daemon=True)
            self._thread.start()
        found = self._report.next()
        if found is None:
            raise InvalidInput(
                f"Lightning ended the fit after {counted(self._epoch, 'epoch')}, and training.epochs is {self.epochs}; "
                "remove what ends it early, such as EarlyStopping or max_steps: search.pruner ends bad trials."
            )
        self._epoch += 1
        numbers = dict(found[1])
        if "train_loss" in numbers:
            numbers.setdefault("loss", numbers.pop("train_loss"))
        return numbers

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
            accelerator="gpu" if self._device.type == "cuda" else "cpu",
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
        found: torch.Tensor = self._module.to(self._device).eval()(items)
        for part, training in modes:
            part.training = training
        return found

    def save(self, folder: Path) -> None:
        """Copy Lightning's checkpoint."""
        shutil.copy(self._checkpoint, folder / "last.ckpt")
        (folder / "epochs.txt").write_text(str(self._epoch))

    def load(self, folder: Path) -> None:
        """Load the checkpoint, from which the fit resumes."""
        shutil.copy(folder / "last.ckpt", self._checkpoint)
        state = torch.load(self._checkpoint, map_location="cpu", weights_only=True)
        self._module.load_state_dict(state["state_dict"])
        self._epoch = int((folder / "epochs.txt").read_text())

    def finish(self) -> None:
        """End the fit, and remove the temporary folder."""
        self._report.end()
        if self._thread is not None:
            self._thread.join()
        self._folder.cleanup()


def _logged(trainer: Any) -> dict[str, float]:
    """Return the numbers that the module of a Lightning trainer has logged."""
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


class SentenceTransformerTrainable(Trainable):
    """A model of sentence-transformers, trained on texts with one of its losses for labelled texts.

    Batches have ``texts_per_class`` texts of each class. The saved folder ``model`` is what ``SentenceTransformer(…)``
    loads.
    """

    batch_size: ClassVar[int] = 32
    texts_per_class: ClassVar[int] = 4

    def model(self, params: Mapping[str, Any], train: Items) -> Any:
        """Return the ``SentenceTransformer``."""
        raise NotImplementedError

    def loss(self, model: Any, params: Mapping[str, Any]) -> torch.nn.Module:
        """Return the loss of ``model``, such as ``BatchAllTripletLoss(model)``."""
        raise NotImplementedError

    def optimizer(self, loss: torch.nn.Module, params: Mapping[str, Any]) -> torch.optim.Optimizer:
        """Return the optimizer of the loss, whose parameters include the model's."""
        return torch.optim.AdamW(loss.parameters(), lr=params.get("lr", 2e-5))

    def setup(self, params: Mapping[str, Any], train: Items, *, seed: int, device: torch.device) -> None:
        """Make model, loss and optimizer."""
        self._model = self.model(params, train).to(device)
        self._loss = self.loss(self._model, params).to(device)
        self._optimizer = self.optimizer(self._loss, params)
        self._texts, self._labels = train.items, torch.from_numpy(train.labels).to(device)
        self._sampler = BATCH_SAMPLERS["balanced"](
            torch.from_numpy(train.labels),
            batch_size=min(self.batch_size, self.texts_per_class * len(train.class_names)),
            images_per_class=self.texts_per_class,
            seed=seed,
        )
        self._epoch = 0

    def train_epoch(self) -> Mapping[str, float]:
        """Train on every batch of the next epoch."""
        self._epoch += 1
        self._model.train()
        losses = []
        for rows_B in self._sampler.batches(self._epoch):
            features = self._model.preprocess([self._texts[row] for row in rows_B.tolist()])
            features = {
                name: value.to(self._labels.device) if isinstance(value, torch.Tensor) else value
                for name, value in features.items()
            }
            loss = self._loss([features], self._labels[rows_B])
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            losses.append(loss.item())
        return {"loss": float(np.mean(losses)), "batches": len(losses)}

    def embed(self, items: Any) -> torch.Tensor:
        """Encode texts."""
        return self._encoded(self._model, items)

    @classmethod
    def _encoded(cls, model: Any, items: Any) -> torch.Tensor:
        found: torch.Tensor = model.encode(
            list(items), batch_size=cls.batch_size, convert_to_tensor=True, show_progress_bar=False
        )
        return found

    @classmethod
    def predictor(cls, folder: Path, params: Mapping[str, Any], *, device: torch.device) -> Callable[[Any], Any]:
        """Return the saved model's function that encodes texts."""
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(folder / "model"), device=str(device), local_files_only=True)
        return lambda items: cls._encoded(model, items)

    def save(self, folder: Path) -> None:
        """Write the model as its library does, and the state of the training."""
        self._model.save_pretrained(str(folder / "model"), create_model_card=False)
        state = {"loss": self._loss.state_dict(), "optimizer": self._optimizer.state_dict(), "epoch": self._epoch}
        torch.save(state, folder / "state.pt")

    def load(self, folder: Path) -> None:
        """Load the state of the training, with the model's weights."""
        state = torch.load(folder / "state.pt", map_location="cpu", weights_only=True)
        self._loss.load_state_dict(state["loss"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._epoch = state["epoch"]
