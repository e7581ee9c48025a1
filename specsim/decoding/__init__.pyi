from ._recording.huggingface import record_hf as record_hf
from ._recording.models import record as record
