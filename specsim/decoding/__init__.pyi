from ._loop import DRAFTINGS as DRAFTINGS
from ._loop import generate as generate
from ._loop import sample as sample
from ._recording.huggingface import record_hf as record_hf
from ._recording.models import STEPS_PER_TEXT as STEPS_PER_TEXT
from ._recording.models import record as record
from ._result import Generation as Generation
from ._result import Step as Step
