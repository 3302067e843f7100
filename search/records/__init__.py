"""What a search stores: its records, the choice of a configuration, the ledger of openings, and scores of models."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
