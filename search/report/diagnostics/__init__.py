"""What a study says about itself, where it says anything."""
