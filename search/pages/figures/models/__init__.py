"""What the chosen models do with the test images, drawn."""
