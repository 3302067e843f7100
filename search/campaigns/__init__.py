"""Several searches that vary one thing, frozen together and tested by one opening: the papers' studies."""
