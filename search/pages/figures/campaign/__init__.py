"""What a campaign's study says, drawn as its paper does."""
