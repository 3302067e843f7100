"""The checks of ``holdout verify``: every record of a search is recomputed from the records that it depends on."""
