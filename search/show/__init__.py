"""Results as text, pages, figures and model cards."""
