"""The catalogue of known-wrong verifiers and decoders: each does what its law says, and each is wrong."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from conftest import FALSE_ALARM

from specsim.auditing import mutants
from specsim.drafts import chain
from specsim.exact import conditional_laws, step_law, target_law
from specsim.models import TableModel
from specsim.readers import ModelRows
from specsim.rules import get as rule
from specsim.stats import chi_square, merged_cells
from specsim.streams import key_of
