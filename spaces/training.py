"""What of a training may be searched beside the loss: the ``space.training`` section of a search file."""

from optuna.distributions import FloatDistribution, IntDistribution

from spaces.space import Parameter, Space
from trainables.losses import loss_row
from trainables.training.config import TrainingConfig

TRAINING = "training"
"""What stands beside the losses' names in ``space``, and beside the hyperparameters of each."""

_Range = FloatDistribution | IntDistribution

SEARCHABLE: dict[str, _Range] = {
    "lr": FloatDistribution(1e-6, 1.0, log=True),
    "head_lr": FloatDistribution(1e-6, 1.0, log=True),
    "proxy_lr": FloatDistribution(1e-6, 10.0, log=True),
    "weight_decay": FloatDistribution(1e-8, 1.0, log=True),
    "clip_grad": FloatDistribution(1e-3, 1e3, log=True),
    "warmup_epochs": IntDistribution(0, 1000),
}


def training_space(training: TrainingConfig, loss: str) -> Space:
    """What may be searched of ``training`` under ``loss``, a name or import path; defaults are what ``training`` says.

    A loss without proxies has no learning rate for them, and gradients that are not clipped have no bound.
    """
    defaults = {
        "lr": training.lr,
        "head_lr": training.head_lr or training.lr,
        "proxy_lr": training.proxy_lr or loss_row(loss).proxy_lr,
        "weight_decay": training.weight_decay,
        "clip_grad": training.clip_grad,
        "warmup_epochs": training.warmup_epochs,
    }
    return {
        name: _parameter(distribution, default)
        for name, distribution in SEARCHABLE.items()
        if (default := defaults[name]) is not None
    }


def _parameter(declared: _Range, default: float) -> Parameter:
    """The declared range, wide enough for the default; a logarithm has no 0, so that the default is the lowest then."""
    low = declared.low if declared.log and default <= 0 else min(declared.low, default)
    high = max(declared.high, default)
    distribution = type(declared)(low, high, log=declared.log)  # type: ignore[arg-type]
    return Parameter(distribution=distribution, default=max(low, default), source="the training section")
