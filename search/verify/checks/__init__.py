"""One file a kind of record: what is stored against what follows from the rest."""
