"""A search file that fits a folder of images."""
