from .records import code_named as code_named, guarded as guarded, lacking as lacking, verify as verify
from .scores import check_retrained as check_retrained, trial_to_retrain as trial_to_retrain
from .studies import Check as Check, check as check, differing as differing
