"""The records of a search: its folder, plan and studies, the choice, the ledger of openings, and scores of models."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
