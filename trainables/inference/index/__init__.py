"""Images by similarity: an index of embeddings that faiss searches, with the images' paths."""
