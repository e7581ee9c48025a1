"""What people have: lines, responses and counters of engines, each answered by one command."""

import re

import pytest
from commands import run

#: Numbers: what is printed of them, and whether they are possible.
NUMBERS = {
    "--acceptance-rate 0.65 --tokens-per-step 3.25": (["1 / (1 − 0.65) = 2.857", "drafts are trees"], 1),
    "--engine vllm --acceptance-rate 0.65 --tokens-per-step 3.25": (["no chain", "a tree can"], 0),
    "--steps 59 --accepted 262 --tokens-per-step 6.44": (["if tokens per step is 2 + accepted / steps"], 1),
    "--engine sglang --gamma 4 --steps 100 --drafted 500 --accepted 180": (["γ + 1 verified tokens"], 1),
    "--accepted 18180 --emitted 16447": (["behind a rejection, as in vLLM V0", "flashinfer"], 1),
    "--engine sglang --emitted 64 --accepted 2 --drafted 177 --tokens-per-step 1.03333": (["steps 60"], 0),
    "--gamma 5 --target-time 281 --step-time 817": (["break-even: 2.907", "38.15% (38.0% to 38.3%)"], 0),
    "--gamma 5 --target-time 281 --step-time 1699": (["break-even: never"], 0),
    "--gamma 3 --target-time 10 --step-time 40 --tokens-per-step 3.0": (["the cost of verification limits"], 0),
    "--tokens-per-step 3.0 --itl 30.0 --tpot 10.0 --throughput 700 --batch 8": (["= ITL / TPOT"], 0),
    "--tokens-per-step 3.0 --itl 30.0 --tpot 30.0": (["tokens per step = ITL / TPOT fails"], 1),
    "--engine vllm --tokens-per-step 3.0 --tpot 10 --throughput 900 --batch 7": (["throughput ≤ batch"], 1),
    "--gamma 3 --steps 100 --by-position 0.8,0.7,0.6 --accepted 185": (["steps that tested the position"], 1),
}  # fmt: skip


@pytest.mark.parametrize("line", NUMBERS)
def test_numbers_are_answered(line):
    said, code = NUMBERS[line]
    ran = run("check-metrics", *line.split())
    assert (ran.code, [one for one in said if one not in re.sub(" +", " ", ran.out)]) == (code, []), ran
