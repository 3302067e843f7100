"""A trained model as something that can be used: images in, embeddings out; no training, no search."""
