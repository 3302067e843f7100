from .comparison import Check as Check, check as check, differing as differing
from .records import code_named as code_named, guarded as guarded, verify as verify
from .retraining import check_retrained as check_retrained, trial_to_retrain as trial_to_retrain
