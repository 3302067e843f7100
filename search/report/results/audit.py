"""What a search's pruning was worth, by the pruned trials that were trained to their end."""

from search.report.results.result import Result


class PruningAudit(Result):
    """Of ``pruned`` trials, which saved ``epochs_saved`` epochs, ``audited`` were trained to their end.

    ``wrongly`` of these came to at least ``bar``, the value of the last of the finalists: pruning cost them a place.
    ``ci95`` is the interval of their share among all pruned trials (Clopper and Pearson 1934), ``best`` the best value
    of an audited one.
    """

    pruned: int
    epochs_saved: int
    audited: int
    bar: float
    wrongly: int
    ci95: tuple[float, float]
    best: float

    @property
    def sentence(self) -> str:
        """In words."""
        low, high = self.ci95
        return (
            f"pruning saved {self.epochs_saved} epochs of {self.pruned} trials; of {self.audited} that were trained to "
            f"their end, {self.wrongly} came to the {self.bar:.4f} of the last finalist "
            f"(95 % interval of the share {low:.0%} to {high:.0%}), the best to {self.best:.4f}"
        )
