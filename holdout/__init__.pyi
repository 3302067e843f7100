from holdout.models import evaluate as evaluate, load as load, losses as losses
from holdout.searches import (
    Search as Search,
    campaign as campaign,
    compare as compare,
    open as open,
    run as run,
)
from search import __version__ as __version__
from trainables.common.errors import Failure as Failure, InvalidInput as InvalidInput
from trainables.common.ranges import Choice as Choice, Float as Float, Int as Int
from trainables.data.dataset import Dataset as Dataset, ItemDataset as ItemDataset
from trainables.inference.embedder import Embedder as Embedder
from trainables.inference.index import ImageIndex as ImageIndex
from trainables.training.library_trainables import (
    EstimatorTrainable as EstimatorTrainable,
    LightningTrainable as LightningTrainable,
    SentenceTransformerTrainable as SentenceTransformerTrainable,
)
from trainables.training.own import OwnModel as OwnModel
from trainables.training.trainable import (
    Items as Items,
    Report as Report,
    Trainable as Trainable,
    trainable as trainable,
)

def shadowed() -> str | None: ...
