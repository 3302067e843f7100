"""Many training runs: what the command line and the library do, from the search file to the report."""

import warnings

__version__ = "0.2.0"
warnings.filterwarnings("ignore", "IProgress not found")  # of tqdm, which Optuna imports, in a notebook's first cell
