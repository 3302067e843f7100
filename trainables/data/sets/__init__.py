"""The data sets, one a file, and what their readers share."""
