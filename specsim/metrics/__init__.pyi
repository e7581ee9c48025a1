from ._checking import Check as Check
from ._checking import Implied as Implied
from ._checking import MetricsCheck as MetricsCheck
from ._checking import check_metrics as check_metrics
from ._definitions import DEFINITIONS as DEFINITIONS
from ._definitions import Definition as Definition
from ._intervals import Range as Range
