"""From stored images to a batch: crop boxes, resampling, loading."""
