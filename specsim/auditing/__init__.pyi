from ._cases.battery import LEVELS as LEVELS
from ._results.audit import Verdict as Verdict
from ._runner import replay_step as replay_step
from ._shards import audit_shard as audit_shard
from ._shards import diagnose as diagnose
from ._two_sample import audit_against as audit_against
