"""The checks of ``holdout verify``: every record of a search is recomputed from the records that it depends on."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
