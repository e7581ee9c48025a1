"""When a verifier fails: which of the known mistakes it looks like, and how sure that is."""

from specsim.auditing._diagnosis.decoders import diagnose_decoder
from specsim.auditing._diagnosis.verifiers import diagnose_chain

__all__ = ["diagnose_chain", "diagnose_decoder"]
