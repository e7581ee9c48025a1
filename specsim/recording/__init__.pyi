from ._huggingface import record_hf as record_hf
from ._models import STEPS_PER_TEXT as STEPS_PER_TEXT
from ._models import record as record
