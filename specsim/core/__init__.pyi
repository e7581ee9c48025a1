from . import distributions as distributions
from . import stats as stats
