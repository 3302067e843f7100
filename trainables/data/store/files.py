"""The files of an image store.

A store is a folder of three files, made by :func:`trainables.data.store.build.build_store` and never changed after:

- ``pixels.bin``: uint8, the images one after the other, each column by column in RGB, of whatever size (columns are
  what resampling adds first);
- ``arrays.npz``: ``labels_N`` (int64, indices of class names) and ``sizes_N2`` (int64, height and width);
- ``index.json``: the format, the data set and the largest short side, the class names, the image keys
  and the digests of the images' content.
"""

FORMAT = 3
PIXELS, ARRAYS, INDEX = "pixels.bin", "arrays.npz", "index.json"
