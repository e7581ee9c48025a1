from ._analysis import expect_tokens as expect_tokens
from ._analysis import read_alpha as read_alpha
from ._consistency import audit_log as audit_log
from ._importing import import_trace as import_trace
from ._reader import default_trace as default_trace
from ._summary import summarise as summarise
from ._truncated import truncate as truncate
from ._writer import writer as writer
