from .client import (
    check_tracking as check_tracking,
    import_mlflow as import_mlflow,
    is_outage as is_outage,
    load_model as load_model,
)
from .projection import Projection as Projection, Tracker as Tracker, milliseconds as milliseconds
from .summary_runs import (
    LOSS as LOSS,
    SEARCH as SEARCH,
    Content as Content,
)
