"""The plan of a search: its checks, its folder, its studies, and the disk space it uses."""
