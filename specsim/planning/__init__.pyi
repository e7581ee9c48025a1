from . import costs as costs
from . import policies as policies
from ._plan import plan as plan
from ._plan import rank_drafts as rank_drafts
