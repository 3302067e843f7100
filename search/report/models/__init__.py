"""How the scored models rank the test images, as it was kept: what pictures of them are drawn from."""
