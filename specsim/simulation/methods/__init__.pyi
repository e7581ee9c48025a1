from ._method import Drafting as Drafting
from ._method import Method as Method
from ._registry import get as get
from ._registry import names as names
