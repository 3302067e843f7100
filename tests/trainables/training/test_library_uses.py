"""Uses that the libraries document, each by its adapter: they train, and are saved and resumed, as the library does."""

import copy
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    EarlyStopping,
    EMAWeightAveraging,
    LearningRateFinder,
    LearningRateMonitor,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from peft import LoraConfig, inject_adapter_in_model
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import TripletEvaluator
from sentence_transformers.sentence_transformer.losses import (
    BatchAllTripletLoss,
    MultipleNegativesRankingLoss,
    SoftmaxLoss,
)
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, RandomTreesEmbedding
from sklearn.neural_network import MLPClassifier
from sklearn.random_projection import SparseRandomProjection
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset
from transformers import TrainerCallback

from examples.texts import Languages
from examples.trainers import tiny
from trainables.common.errors import InvalidInput
from trainables.training.library_trainables import EstimatorTrainable, LightningTrainable, SentenceTransformerTrainable
from trainables.training.trainable import Items, Trainable, checked_embeddings, seed_epoch

EPOCHS = 2
VECTORS, LABELS = tiny.vectors()
OF_VECTORS = Items(items=VECTORS, labels=LABELS, class_names=tuple("abcdefgh"))

SLOW = {"compiled_module", "compiled"}
"""Uses of more than a second."""

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
    *(
        pytest.mark.filterwarnings(f"ignore:{start}")
        for start in (
            "The '.*_dataloader' does not have many workers",
            "The number of training batches",
            "Found 1 module.s. in eval mode",
            "You're using the WeightAveraging callback with a model that overrides",
            "Checkpoint directory .* exists and is not empty",
            "Experiment logs directory .* exists",
            "Swapping scheduler",
            "SWA is currently",
            "The dirpath has changed",
            "Trying to infer the `batch_size`",
            "The .grad attribute of a Tensor",
        )
    ),
]


def embedded(training: Trainable, items: Any) -> Any:
    """Return the embeddings of ``items`` as one list, in batches from the end, and alone."""
    with torch.no_grad():
        whole = checked_embeddings(training.embed(items), len(items)).cpu()
        parts = [checked_embeddings(training.embed(items[row : row + 3]), 3).cpu() for row in (3, 0)]
        alone = checked_embeddings(training.embed(items[:1]), 1).cpu()
    torch.testing.assert_close(
        torch.cat([*parts[::-1], alone]), torch.cat([whole[:6], whole[:1]]), rtol=1e-2, atol=1e-2
    )
    return whole


@contextmanager
def begun(own: type[Trainable], items: Items, epochs: int = EPOCHS) -> Iterator[Trainable]:
    training = own()
    training.epochs = epochs
    seed_epoch(7, 0)
    training.setup({}, items, seed=7, device=torch.device("cpu"))
    try:
        yield training
    finally:
        training.finish()


def trained(training: Trainable, epoch: int) -> Mapping[str, float]:
    seed_epoch(7, epoch)
    return training.train_epoch() or {}


def keeps_the_contract(
    own: type[Trainable], items: Items, folder: Path, *, logs: bool = True
) -> list[dict[str, float]]:
    """Train two epochs, load each into a fresh object, and resume the first; return the numbers of the epochs."""
    probe = items.items[:12]
    expected, found = [], []
    with begun(own, items) as training:
        for epoch in (1, 2):
            found.append(dict(trained(training, epoch)))
            expected.append(embedded(training, probe))
            assert not logs or math.isfinite(found[-1]["loss"])
            (folder / str(epoch)).mkdir()
            training.save(folder / str(epoch))
    for epoch in (1, 2)[: 1 if isinstance(items.items, list) else 2]:  # loading takes longer there
        with begun(own, items) as loaded:
            loaded.load(folder / str(epoch))
            torch.testing.assert_close(embedded(loaded, probe), expected[epoch - 1], rtol=1e-5, atol=1e-6)
            if epoch == 1:
                numbers = dict(trained(loaded, 2))
                torch.testing.assert_close(embedded(loaded, probe), expected[1], rtol=1e-4, atol=1e-5)
                assert numbers == pytest.approx(found[1], rel=1e-4, nan_ok=True)
    return found


def use(adapter: type[Trainable], made: Callable[[], Any]) -> type[Trainable]:
    return type("Use", (adapter,), {"function": lambda self, params, train, report: made()})


# Lightning.


class Net(LightningModule):
    """A small network with dropout; ``norm`` adds batch normalisation."""

    lr = 0.01

    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.make(norm)

    def make(self, norm: bool = False) -> None:
        self.network: Any = nn.Sequential(
            nn.Linear(16, 32),
            nn.BatchNorm1d(32) if norm else nn.Identity(),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(32, 8),
        )
        self.classify = nn.Linear(8, 8)

    def forward(self, items: Any) -> Any:
        return self.network(items)

    def loss(self, batch: Any) -> Any:
        return nn.functional.cross_entropy(self.classify(self(batch[0])), batch[1])

    def training_step(self, batch: Any, number: int) -> Any:
        loss = self.loss(batch)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def loader(**options: Any) -> Any:
    data = TensorDataset(torch.from_numpy(VECTORS), torch.from_numpy(LABELS))
    return DataLoader(data, **(options or {"batch_size": 16, "shuffle": True}))


class InSetup(Net):
    def __init__(self) -> None:
        LightningModule.__init__(self)
        self.network = None

    def setup(self, stage: str) -> None:
        if self.network is None:
            self.make()


class Averaged(Net):
    def configure_callbacks(self) -> Any:
        return [EMAWeightAveraging(decay=0.9)]


class KeepsPaths(Net):
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["place"] = Path("x")


class Watched(Net):
    """Has hyperparameters of any type, validates in each epoch, and lowers the rate when that loss does not fall."""

    def __init__(self, sizes: Any, place: Any, loss: Any) -> None:
        super().__init__()
        self.save_hyperparameters()

    def validation_step(self, batch: Any, number: int, dataloader_idx: int = 0) -> None:
        name = "other_loss" if dataloader_idx else "val_loss"
        self.log(name, self.loss(batch) * 0 + self.current_epoch, add_dataloader_idx=False)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        schedule = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"}}


class Data(LightningDataModule):
    def __init__(self, place: Any) -> None:
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        self.data = loader()

    def train_dataloader(self) -> Any:
        return self.data

    def val_dataloader(self) -> Any:
        return [loader(batch_size=32), loader(batch_size=8)]

    def state_dict(self) -> dict[str, Any]:
        return {"seen": np.arange(3), "largest": np.float32(2)}


class Logged(Net):
    def configure_callbacks(self) -> Any:
        return [LearningRateMonitor(), ModelCheckpoint(monitor="train_loss", save_top_k=2)]


MODULES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "plain": (lambda: (Net(), loader()), {}),
    "layers_in_setup": (lambda: (InSetup(), loader()), {}),
    "exponential_average": (lambda: (Averaged(norm=True), loader()), {}),
    "stochastic_average": (lambda: (Net(norm=True), loader()), {"callbacks": [StochasticWeightAveraging(0.01, 1)]}),
    "compiled_module": (lambda: (torch.compile(Net(), backend="eager"), loader()), {}),
    "data_module_and_hyperparameters": (lambda: (Watched(np.ones(3), Path("x"), len), Data(Path("x"))), {}),
    "logger_and_checkpoints": (
        lambda: (Logged(), loader()), {"logger": True, "callbacks": [ModelCheckpoint(save_last=True)]},
    ),
}  # fmt: skip


def of_lightning(made: Callable[[], Any], options: Mapping[str, Any]) -> type[Trainable]:
    def with_trainer() -> Any:
        return (Trainer(accelerator="cpu", **copy.deepcopy(dict(options))), *made()) if options else made()

    return use(LightningTrainable, with_trainer)


class FindsRate(Net):
    def configure_callbacks(self) -> Any:
        return [LearningRateFinder(num_training_steps=4)]


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "paths_in_the_checkpoint": (
        lambda: (KeepsPaths(), loader()),
        r"^Lightning's checkpoint holds pathlib\.PosixPath, ",
    ),
    "found_rate": (
        lambda: (FindsRate(), loader()),
        r"^Lightning does not resume after it finds a rate or batch size; search for it\.$",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_restored_is_refused_in_the_first_epoch(name: str, tmp_path: Path) -> None:
    made, sentence = REFUSED[name]
    with pytest.raises(InvalidInput, match=sentence):
        keeps_the_contract(of_lightning(made, {}), OF_VECTORS, tmp_path)
    assert not (tmp_path / "2").exists()


def test_an_ended_fit_keeps_its_last_state_after_a_resumption_too(tmp_path: Path) -> None:
    options = {"callbacks": [EarlyStopping("train_loss", patience=1, min_delta=9)]}
    own = of_lightning(lambda: (Averaged(), loader()), options)
    keeps_the_contract(own, OF_VECTORS, tmp_path)
    with begun(own, OF_VECTORS, epochs=4) as training:
        whole = [(dict(trained(training, epoch)), embedded(training, VECTORS)) for epoch in (1, 2, 3, 4)]
        (place := tmp_path / "4").mkdir()
        training.save(place)
    assert [numbers for numbers, _ in whole[2:]] == [{"batches": 0}] * 2
    assert not torch.equal(whole[0][1], whole[1][1])
    assert torch.equal(whole[1][1], whole[2][1])
    with begun(own, OF_VECTORS, epochs=5) as loaded:
        loaded.load(place)
        assert trained(loaded, 5) == {"batches": 0}
        assert torch.equal(embedded(loaded, VECTORS), whole[1][1])


SCHEDULES: Mapping[str, Callable[[torch.optim.Optimizer, Any], dict[str, Any]]] = {
    "one_cycle": lambda optimizer, trainer: {
        "scheduler": lr_scheduler.OneCycleLR(optimizer, Net.lr, total_steps=trainer.estimated_stepping_batches),
        "interval": "step",
    },
    "cosine": lambda optimizer, trainer: {"scheduler": lr_scheduler.CosineAnnealingLR(optimizer, trainer.max_epochs)},
    "plateau": lambda optimizer, trainer: {
        "scheduler": lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5), "monitor": "train_loss",
    },
}  # fmt: skip


class Noted(Net):
    """Notes the learning rate of every step and the hooks that are called."""

    def __init__(self, schedule: str) -> None:
        super().__init__()
        self.classify.eval()  # as of a frozen part
        self.schedule, self.rates, self.hooks = schedule, list[float](), list[str]()

    def training_step(self, batch: Any, number: int) -> Any:
        loss = self.loss(batch)
        # rises, so that a plateau is met in every epoch
        self.log("train_loss", loss.detach() * 0 + float(self.current_epoch), on_step=False, on_epoch=True)
        self.rates.append(self.optimizers().param_groups[0]["lr"])  # type: ignore[union-attr]
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        return {"optimizer": optimizer, "lr_scheduler": SCHEDULES[self.schedule](optimizer, self.trainer)}

    def on_fit_start(self) -> None:
        self.hooks.append("fit")

    def on_train_epoch_end(self) -> None:
        self.hooks.append("epoch")

    def on_fit_end(self) -> None:
        self.hooks.append("end")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_learning_rates_are_those_of_lightning_after_a_resumption_too(schedule: str, tmp_path: Path) -> None:
    first, again, plain = (Noted(schedule) for _ in range(3))
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    with begun(of_lightning(lambda: (first, loader()), options), OF_VECTORS, epochs=3) as training:
        for epoch in (1, 2, 3):
            assert trained(training, epoch)["loss"] == epoch - 1
            training.embed(VECTORS)
            if epoch == 2:
                training.save(tmp_path)
        Trainer(accelerator="cpu", max_epochs=3, default_root_dir=tmp_path, **options).fit(plain, loader())
        assert first.rates == plain.rates
        assert len(set(plain.rates)) > 1
        assert first.hooks == plain.hooks == ["fit", *["epoch"] * 3, "end"]
        with begun(of_lightning(lambda: (again, loader()), options), OF_VECTORS, epochs=3) as loaded:
            loaded.load(tmp_path)
            trained(loaded, 3)
            assert again.rates == plain.rates[len(plain.rates) * 2 // 3 :]
            assert torch.equal(loaded.embed(VECTORS), training.embed(VECTORS))


def test_a_pruned_training_ends_its_fit() -> None:
    net = Noted("cosine")
    with begun(of_lightning(lambda: (net, loader()), {}), OF_VECTORS) as training:
        trained(training, 1)
        training.embed(VECTORS)
        assert [part.training for part in net.children()] == [True, False], "the modes are kept"
        running = threading.active_count()
    assert threading.active_count() == running - 1
    assert net.hooks == ["fit", "epoch"]


# sentence-transformers.

SENTENCES, LANGUAGES = tiny.of_all(Languages(languages=4, sentences=6))
OF_TEXTS = Items(items=SENTENCES, labels=LANGUAGES, class_names=tuple("abcd"))


class SavesAndLogsOften(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_save, control.should_log = state.global_step % 2 == 0, state.global_step % 3 == 0


class Stops(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step >= 3


def by_label() -> Any:
    return Dataset.from_dict({"text": list(SENTENCES), "label": LANGUAGES.tolist()})


def pairs() -> Any:
    return tiny.pairs(SENTENCES, LANGUAGES)


def trainer(
    data: Any = None, loss: Any = MultipleNegativesRankingLoss, model: Any = None, given: Any = None, **arguments: Any
) -> Any:
    model = model or SentenceTransformer(tiny.bert(), device="cpu")
    data = pairs() if data is None else data
    losses = {name: own(model) for name, own in loss.items()} if isinstance(loss, dict) else loss(model)
    arguments = {"per_device_train_batch_size": 8, "learning_rate": 1e-3, "use_cpu": True, **arguments}
    options = SentenceTransformerTrainingArguments(**arguments)
    return SentenceTransformerTrainer(model, options, data, loss=losses, **(given or {}))


def two() -> Any:
    data = DatasetDict({"pairs": pairs(), "classes": by_label()})
    return trainer(data, {"pairs": MultipleNegativesRankingLoss, "classes": BatchAllTripletLoss})


def with_adapters() -> Any:
    model = SentenceTransformer(tiny.bert(), device="cpu")
    inject_adapter_in_model(LoraConfig(r=4, target_modules=["query", "value"]), model)
    return trainer(model=model)


def of_model_init() -> Any:
    options = SentenceTransformerTrainingArguments(per_device_train_batch_size=8, learning_rate=1e-3, use_cpu=True)
    return SentenceTransformerTrainer(
        args=options, train_dataset=pairs(), model_init=lambda: SentenceTransformer(tiny.bert(), device="cpu"),
        loss=MultipleNegativesRankingLoss,
    )  # fmt: skip


TRAINERS: dict[str, Callable[[], Any]] = {
    "plain": trainer,
    "best_by_an_evaluator": lambda: trainer(
        eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True,
        given={
            "eval_dataset": pairs(), "evaluator": TripletEvaluator(SENTENCES[:6], SENTENCES[1:7], SENTENCES[-6:]),
        },
    ),
    "two_losses": two,
    "grouped_by_label": lambda: trainer(by_label(), BatchAllTripletLoss, batch_sampler="group_by_label"),
    "saved_and_logged_often": lambda: trainer(given={"callbacks": [SavesAndLogsOften()]}),
    "iterable_many_passes": lambda: trainer(
        pairs().to_iterable_dataset(), max_steps=12, gradient_accumulation_steps=2
    ),
    "accumulated": lambda: trainer(gradient_accumulation_steps=3, batch_sampler="no_duplicates"),
    "bf16": lambda: trainer(bf16=True),
    "loss_with_parameters": lambda: trainer(labelled(), lambda model: SoftmaxLoss(model, 32, 2)),
    "adapters": with_adapters,
    "model_init": of_model_init,
    "compiled": lambda: trainer(torch_compile=True, torch_compile_backend="eager"),
}  # fmt: skip


def labelled() -> Any:
    data = pairs()
    return data.add_column("label", [row % 2 for row in range(len(data))])


def test_the_loss_is_that_of_the_epoch_however_often_it_is_logged() -> None:
    found = {}
    for name in ("plain", "saved_and_logged_often", "best_by_an_evaluator"):
        with begun(use(SentenceTransformerTrainable, TRAINERS[name]), OF_TEXTS) as training:
            found[name] = [dict(trained(training, epoch)) for epoch in (1, 2)]
    for name, epochs in found.items():
        for epoch, whole in zip(epochs, found["plain"], strict=True):
            assert epoch == pytest.approx(whole), name
    assert found["plain"][0]["batches"] == len(pairs()) / 8


def test_a_sentence_transformer_that_stops_keeps_its_last_state(tmp_path: Path) -> None:
    own = use(SentenceTransformerTrainable, lambda: trainer(given={"callbacks": [Stops()]}))
    with begun(own, OF_TEXTS, epochs=3) as training:
        numbers = [dict(trained(training, epoch)) for epoch in (1, 2, 3)]
        training.save(tmp_path)
        whole = embedded(training, SENTENCES)
    assert [entry["batches"] for entry in numbers] == [3, 0, 0]
    with begun(own, OF_TEXTS, epochs=4) as loaded:
        loaded.load(tmp_path)
        assert trained(loaded, 4) == {"batches": 0}
        torch.testing.assert_close(embedded(loaded, SENTENCES), whole, rtol=1e-5, atol=1e-6)


# scikit-learn.

ESTIMATORS: dict[str, Callable[[], Any]] = {
    "probabilities": lambda: RandomForestClassifier(5),
    "unseeded": lambda: SparseRandomProjection(4),
    "sparse": lambda: RandomTreesEmbedding(3, max_depth=2),
    "table": lambda: PCA(3).set_output(transform="pandas"),
    "warm_start": lambda: MLPClassifier(8, warm_start=True, max_iter=1),
}


USES: dict[str, tuple[type[Trainable], Items]] = {
    **{f"lightning, {name}": (of_lightning(*given), OF_VECTORS) for name, given in MODULES.items()},
    **{f"texts, {name}": (use(SentenceTransformerTrainable, made), OF_TEXTS) for name, made in TRAINERS.items()},
    **{f"scikit, {name}": (use(EstimatorTrainable, made), OF_VECTORS) for name, made in ESTIMATORS.items()},
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name.split(", ")[1] in SLOW)) for name in USES]
)
def test_what_a_library_validates_is_restored(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (place := tmp_path / "saved").mkdir()
    own, items = USES[name]
    keeps_the_contract(own, items, place, logs=not issubclass(own, EstimatorTrainable))
    assert {path.name for path in tmp_path.iterdir()} - {"trainer_output"} == {"saved"}  # transformers makes the first
