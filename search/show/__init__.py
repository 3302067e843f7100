"""How results are shown: text, pages, figures and model cards."""
