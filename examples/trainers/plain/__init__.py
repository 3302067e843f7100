"""The ten scripts without Holdout."""
