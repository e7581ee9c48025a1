from ._loop import DRAFTINGS as DRAFTINGS
from ._loop import generate as generate
from ._loop import sample as sample
from ._result import Generation as Generation
from ._result import Step as Step
