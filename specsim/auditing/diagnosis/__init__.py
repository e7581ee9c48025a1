"""When a verifier fails: which of the known mistakes it looks like, and how sure that is."""

from specsim.auditing.diagnosis.chains import diagnose_chain
from specsim.auditing.diagnosis.decoders import diagnose_decoder

__all__ = ["diagnose_chain", "diagnose_decoder"]
