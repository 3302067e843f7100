"""Files: written whole, on disks and in stores that may fail, be full, or not answer."""
