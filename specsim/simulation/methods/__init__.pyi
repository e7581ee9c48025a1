from ._method import Drafting as Drafting
from ._method import Method as Method
from ._systems import get as get
from ._systems import names as names
