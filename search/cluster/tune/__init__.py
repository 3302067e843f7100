"""Ray Tune, wrapped once: it runs the queue's trials on actors, as many as are this search's share."""
