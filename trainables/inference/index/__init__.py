"""Similarity search of images: an index of embeddings searched by faiss, its structures, and its files."""
