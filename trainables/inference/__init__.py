"""Use of trained models: files, embedding of images, similarity search, export. No training, no search."""
