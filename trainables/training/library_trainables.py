"""User-defined trainings with scikit-learn, PyTorch Lightning or sentence-transformers, imported when used.

Each calls ``function(params, train, report)``, a method or what :func:`trainable` decorates, for the library's own
objects, and trains these.
"""

import copy
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from trainables.common.errors import InvalidInput, listed
from trainables.models.embedding import merged
from trainables.training.trainable import Items, RepeatedTrainable, Report, Trainable, network_embeddings, seed_epoch

ARRAY_GLOBALS: list[Any] = [
    *(np.ndarray, np.dtype, np.zeros(0).__reduce__()[0], np.float64(0).__reduce__()[0]),
    *{type(np.dtype(code)) for code in np.typecodes["All"]},
]
"""Parts of NumPy's arrays, which PyTorch loads from checkpoints without running code."""


logger = logging.getLogger(__name__)


@cache
def say_set(owner: str, names: tuple[str, ...]) -> None:
    """Log once in a process which settings of a script are Holdout's."""
    logger.warning("Holdout sets %s of %s; what the script sets there has no effect.", ", ".join(names), owner)


class EstimatorTrainable(RepeatedTrainable):
    """An estimator of scikit-learn, or anything with ``fit`` and one of ``transform``, ``predict_proba``.

    ``function`` returns it; ``report.seed`` is for its ``random_state``. An epoch is a fit to the training items and
    their labels, so ``training.epochs`` is 1 unless the estimator has ``warm_start``. The estimator is fitted again
    where another training would be loaded: it is never pickled.
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
        methods = [getattr(self._estimator, name, None) for name in ("transform", "predict_proba")]
        if (method := methods[0] or methods[1]) is None:
            name = type(self._estimator).__name__
            raise InvalidInput(f"{name} has neither transform nor predict_proba; return an estimator with one of them.")
        found = method(items)
        return found.toarray() if hasattr(found, "toarray") else np.asarray(found)  # sparse matrices


class _Fit(Trainable):
    """A training that is one call of its library, in a thread that waits between its epochs.

    A resumed one continues from the library's own checkpoint. Where the library ends the fit early, the remaining
    epochs take no steps.
    """

    function: ClassVar[Callable[..., Any]]

    def setup(self, params: Mapping[str, Any], train: Items, *, seed: int, device: torch.device) -> None:
        self._report = Report(epochs=self.epochs, seed=seed, device=device)
        self._folder = tempfile.TemporaryDirectory(prefix="holdout-fit-")
        self._checkpoint = Path(self._folder.name) / "last"
        self._epoch, self._ended = 0, False
        self._thread: Thread | None = None
        self._made = self.function(params, train, self._report)

    def _fit(self) -> None:
        """Train, from the checkpoint if there is one; call ``self._report`` in each epoch, after its checkpoint."""
        raise NotImplementedError

    def _next(self) -> Mapping[str, float]:
        """Let the library run until its next report."""
        if self._thread is None:
            self._thread = Thread(target=self._report.run, args=(self._fit,), daemon=True)
            self._thread.start()
        if (found := self._report.next()) is None:
            raise InvalidInput("The library ended the fit without a step; give it training items and batches.")
        return found[1]

    def train_epoch(self) -> Mapping[str, float]:
        """Let the library train until the end of the next epoch."""
        numbers = {"batches": 0} if self._ended else self._next()
        self._epoch += 1
        return numbers

    def save(self, folder: Path) -> None:
        """Write the number of epochs; subclasses add the checkpoint."""
        (folder / "epochs.txt").write_text(f"{self._epoch}{' ended' if self._ended else ''}")

    def load(self, folder: Path) -> None:
        epoch, *ended = (folder / "epochs.txt").read_text().split()
        self._epoch, self._ended = int(epoch), bool(ended)

    def finish(self) -> None:
        """End the fit, and remove the temporary folder."""
        self._report.end()
        if self._thread is not None:
            self._thread.join()
        self._folder.cleanup()


class LightningTrainable(_Fit):
    """A ``LightningModule`` as a training on one device.

    ``function`` returns a ``Trainer``, which may be left out, and what its ``fit`` is called with: the module, whose
    ``forward`` maps a batch of items to embeddings, and the loaders, of training and of validation, or a
    ``LightningDataModule``. Vectors, and items of :meth:`Items.dataset`, are given to ``forward`` as a tensor on its
    device, others as a list. Lightning's checkpoint holds no hyperparameters of the module: ``function`` gives them.
    What the module logs is recorded, its entry ``loss`` or ``train_loss`` as the loss.
    """

    def setup(self, params: Mapping[str, Any], train: Items, *, seed: int, device: torch.device) -> None:
        super().setup(params, train, seed=seed, device=device)
        from lightning.pytorch import Trainer

        given = [*self._made] if isinstance(self._made, tuple | list) else [self._made]
        self._trainer: Any = given.pop(0) if isinstance(given[0], Trainer) else None
        self._given, self._train = given, train
        self._module: Any = getattr(given[0], "_orig_mod", given[0])  # a compiled module's
        logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # it describes the machine
        self._averages: dict[str, Tensor] = {}
        torch.serialization.add_safe_globals(ARRAY_GLOBALS)

    def _fit(self) -> None:
        """Fit the module, and report each epoch: all but the last one when the next one begins."""
        from lightning.pytorch import Callback, Trainer
        from lightning.pytorch.callbacks import (
            BatchSizeFinder,
            Checkpoint,
            LearningRateFinder,
            ModelSummary,
            ProgressBar,
        )
        from lightning.pytorch.loggers import CSVLogger

        training, begun, epochs, report = self, self._epoch, self.epochs, self._report

        class Epochs(Callback):
            # Lightning resumes from the end of an epoch, but updates schedulers that watch a metric only after it. So
            # this saves at the next beginning, with the loops as they were at the end.
            loops: ClassVar[dict[str, Any]] = {}
            saved: Any = None
            loads = begun > 0

            def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
                if any(isinstance(callback, BatchSizeFinder | LearningRateFinder) for callback in trainer.callbacks):
                    raise InvalidInput("Lightning does not resume after it finds a rate or batch size; search for it.")

            def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
                if self.loads:
                    self.loads = False
                    trainer.precision_plugin.convert_module(pl_module)
                    report(pl_module)  # the end of ``load``

            def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
                # The average of weights may need an epoch more for its batch normalisation, which is part of the last.
                if begun < trainer.current_epoch < epochs:
                    self.save(trainer)
                    report(pl_module, **_logged(trainer))

            def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                self.loops["fit_loop"] = copy.deepcopy(trainer.fit_loop.state_dict())

            def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
                if self.saved is not None:
                    self.saved = checkpoint
                    checkpoint["loops"] |= self.loops
                    for owner in filter(None, (pl_module, trainer.datamodule)):
                        for name in ("KEY", "NAME", "TYPE"):
                            checkpoint.pop(getattr(owner, f"CHECKPOINT_HYPER_PARAMS_{name}"), None)

            def save(self, trainer: Any) -> None:
                self.saved = {}
                trainer.save_checkpoint(training._checkpoint)
                stored, self.saved = self.saved["state_dict"], None
                own = {name: mine for name, mine in training._module.state_dict().items() if torch.is_tensor(mine)}
                pairs = {name: (stored[name].to(mine), mine) for name, mine in own.items() if name in stored}
                training._averages = {name: value for name, (value, mine) in pairs.items() if not value.equal(mine)}

        trainer: Any = self._trainer
        if trainer is None:
            accelerator = "gpu" if report.device.type == "cuda" else "cpu"
            trainer = Trainer(accelerator=accelerator, devices=1, logger=False)
        else:
            say_set("the Trainer", ("max_epochs", "logger", "its checkpoints and progress bar"))
            trainer.loggers = [CSVLogger(self._folder.name)]
        trainer.fit_loop.max_epochs, trainer.num_sanity_val_steps = epochs, 0
        # The first: an epoch is saved before others begin the next one.
        self._device = trainer.strategy.root_device
        ours = Checkpoint | ProgressBar | ModelSummary
        trainer.callbacks = [own := Epochs(), *(each for each in trainer.callbacks if not isinstance(each, ours))]
        last = str(self._checkpoint) if begun else None
        trainer.fit(*self._given, ckpt_path=last, weights_only=True if last else None)
        own.save(trainer)
        self._ended = True
        report(self._module, **_logged(trainer))

    def embed(self, items: Any) -> Tensor:
        """Return the module's output for ``items``, in evaluation mode and with the weights of its checkpoint."""
        module = self._module.to(self._device)
        forward = partial(torch.func.functional_call, module, self._averages, tie_weights=False)
        return network_embeddings(module, lambda batch: forward((batch,)), items, self._train)

    def save(self, folder: Path) -> None:
        super().save(folder)
        if unsafe := torch.serialization.get_unsafe_globals_in_checkpoint(self._checkpoint):
            raise InvalidInput(
                f"Lightning's checkpoint holds {listed(sorted(unsafe))}, which would run code when it is loaded; add "
                "only tensors, arrays, numbers, text, lists and dictionaries to it."
            )
        shutil.copy(self._checkpoint, folder / "last.ckpt")

    def load(self, folder: Path) -> None:
        """Let Lightning restore the module, as it does to continue."""
        super().load(folder)
        shutil.copy(folder / "last.ckpt", self._checkpoint)
        self._next()


def _logged(trainer: Any) -> dict[str, float]:
    """Return the numbers that the module of a Lightning trainer has logged."""
    numbers = {name: float(value) for name, value in trainer.callback_metrics.items()}
    names = [name for name in ("loss", "train_loss", "train/loss", "train_loss_epoch") if name in numbers]
    return {"loss": numbers.pop(names[0]), **numbers} if names else numbers


class SentenceTransformerTrainable(_Fit):
    """A ``SentenceTransformerTrainer`` as a training, with its losses, schedule, precision and batches.

    ``function`` returns it. Epochs, seed, checkpoints and logs of its arguments are set here; with ``max_steps``, which
    data sets without a length need, an epoch is an equal part of these. The saved folder ``model`` is what
    ``SentenceTransformer(…)`` loads; adapters of peft are merged in it.
    """

    def _fit(self) -> None:
        from transformers import PrinterCallback, ProgressCallback, TrainerCallback

        training, trainer, report = self, self._made, self._report
        part = max(trainer.args.max_steps, 0) // self.epochs

        class Epochs(TrainerCallback):
            begun = -1  # the step after which the epoch began; -1 before the first step
            ends = False

            def on_epoch_begin(self, *_: Any, **__: Any) -> None:
                seed_epoch(report.seed, training._epoch + 1)  # resuming draws numbers, too

            def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if self.begun < 0:
                    self.begun, self.ends = state.global_step, False
                    self.on_epoch_begin()  # and so does skipping batches

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if part and state.global_step % part == 0:
                    self.end(control)

            def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if not part or control.should_training_stop:
                    self.end(control)

            def end(self, control: Any) -> None:
                self.ends = control.should_log = control.should_save = True

            def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                training._checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
                if self.ends and self.begun >= 0 and not control.should_training_stop:
                    self.report(state)

            def report(self, state: Any) -> None:
                # Other entries are of evaluations.
                logged = [entry for entry in state.log_history if "loss" in entry and entry["step"] > self.begun]
                steps = np.diff([self.begun, *(entry["step"] for entry in logged)])
                self.begun = -1
                loss = float(np.average([entry["loss"] for entry in logged], weights=steps))
                report(trainer.model.encode, loss=loss, batches=int(steps.sum()))

        own: dict[str, Any] = {
            "num_train_epochs": self.epochs, "seed": report.seed, "output_dir": self._folder.name,
            "dataloader_pin_memory": report.device.type == "cuda", "logging_strategy": "no", "save_strategy": "no",
            "save_total_limit": 1, "load_best_model_at_end": False, "logging_nan_inf_filter": False,
            "restore_callback_states_from_checkpoint": True,
        }  # fmt: skip
        say_set("the training arguments", tuple(own))
        vars(trainer.args).update(own)
        trainer.accelerator.dataloader_config.data_seed = report.seed  # by default the global one, which is an epoch's
        for callback in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(callback)
        trainer.add_callback(epochs := Epochs())
        # The weights are saved and loaded here: the library would load adapters of peft from their base's address. The
        # second method is private; pyproject.toml bounds the version.
        trainer.save_model = lambda folder, **_: Path(folder).mkdir(exist_ok=True)
        trainer._load_from_checkpoint = lambda folder: None
        trainer.model_init = None  # it has made the model
        if not hasattr(trainer.train_dataset, "__len__"):  # it continues after a kill where it was
            trainer.train_dataset = trainer.train_dataset.repeat(None)
        trainer.train(resume_from_checkpoint=str(self._checkpoint) if self._epoch else None)
        self._ended = True
        if epochs.begun >= 0:
            epochs.report(trainer.state)

    @property
    def _weights(self) -> torch.nn.Module:
        losses = self._made.loss
        return torch.nn.ModuleList([self._made.model, *(losses.values() if isinstance(losses, dict) else [losses])])

    def embed(self, items: Any) -> Tensor:
        """Encode texts and images in the precision of the weights, as the saved model does, not of the training."""
        own = vars(self._made.model)
        autocast = {"forward": own.pop("forward")} if "forward" in own else {}
        found = _encoded(self._made.model, items)
        own.update(autocast)
        return found

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
        weights = self._weights.state_dict().items()
        torch.save({name.replace("_orig_mod.", ""): value for name, value in weights}, folder / "weights.pt")
        shutil.copytree(self._checkpoint, folder / "trainer", ignore=shutil.ignore_patterns("rng_state*"))

    def load(self, folder: Path) -> None:
        """Load the weights, and the state from which the training resumes."""
        super().load(folder)
        shutil.copytree(folder / "trainer", self._checkpoint)
        self._weights.load_state_dict(torch.load(folder / "weights.pt", map_location="cpu", weights_only=True))


def _encoded(model: Any, items: Any) -> Tensor:
    """Encode texts and images, which the library does not mix in one call; rows are in the order of the items."""
    kinds_N = torch.tensor([isinstance(item, str) for item in items])
    parts = [
        model.encode([items[row] for row in rows_M], convert_to_tensor=True, show_progress_bar=False)
        for rows_M in (kinds_N.nonzero()[:, 0], (~kinds_N).nonzero()[:, 0])
        if len(rows_M)
    ]
    return torch.cat(parts)[kinds_N.int().argsort(descending=True, stable=True).argsort()]
