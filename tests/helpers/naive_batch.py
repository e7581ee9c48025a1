"""The server of `specsim.planning.simulate_batch` once more, in plain Python and from its documentation alone: one object
for each request, one uniform at a time, times from `Network.seconds`."""

import math
from dataclasses import dataclass, field

from specsim.core._streams import Purpose, uniform

__all__ = ["Request", "serve"]


@dataclass
class Request:
    """What is known of a request, and what happens to it."""

    arrival: float
    prompt: int
    output: int
    chance: object  #: a rate, or the chances of accepting at least 1, 2, … tokens
    uniforms: object  #: its step, as a number: a uniform
    guesses: object  #: and one for what a classifier takes it for
    emitted: int = 0
    steps: int = 0
    started: float = math.nan
    first: float = math.nan
    finished: float = math.nan
    gamma: int = 0
    length: int = 0
    accepted: list = field(default_factory=list)
    tested: list = field(default_factory=list)
    drafted: list = field(default_factory=list)

    def accepts(self, most):
        """Of `most` drafted tokens of its next step."""
        u = self.uniforms(self.steps)
        chances = (
            [self.chance**k for k in range(1, most + 1)]
            if isinstance(self.chance, float)
            else self.chance[:most]
        )
        return sum(u < chance for chance in chances)


def requests_of(drawn, chances, key):
    """The requests of a replication: block b of 48 uniforms has steps 16b … of the stream, 16 in a row."""
    made, blocks = [], 0
    for number in range(len(drawn.arrivals)):
        output = int(drawn.outputs[number])

        def numbered(step, purpose=Purpose.VERIFY, base=blocks):
            row, column = divmod(step % 48, 16)
            return uniform(key, purpose, 16 * (base + step // 48) + column, row)

        def guessed(step, numbered=numbered):
            return numbered(step, Purpose.DRAFT)

        chance = float(drawn.alphas[number]) if chances is None else chances
        made.append(
            Request(
                float(drawn.arrivals[number]), int(drawn.prompts[number]), output, chance, numbered, guessed
            )
        )
        blocks += math.ceil(output / 48)
    return made


def seconds_of(part, sequences, tokens, context):
    """The time of a pass, by the model of costs where it is a roofline."""
    if part.network is None:
        return part.fixed + part.per_sequence * sequences + part.per_token * tokens
    network, hardware = part.network, part.hardware
    return network.seconds(hardware, 1, tokens, context)


def choose(policy, running, prefilling, cost, history):
    """The draft lengths, as numbers in the order of `running`; nothing is drafted for requests that join."""
    kind = type(policy).__name__
    drafting = [one for one in running if not prefilling(one)]
    held = {id(one): one.prompt + one.emitted for one in drafting}
    for one in running:
        one.gamma = 0
    if kind == "Goodput":
        recent = history[-policy.window :]
        alpha = (sum(a for a, _ in recent) + 8 * policy.alpha) / (sum(t for _, t in recent) + 8)
        joining = [one for one in running if prefilling(one)]

        def rate(gamma):
            seen = sum(min(length, cost.seen) for length in held.values())
            tokens = len(drafting) * (gamma + 1) + sum(one.prompt for one in joining)
            time = gamma * seconds_of(cost.draft, len(drafting), len(drafting), seen)
            time += seconds_of(cost.target, len(running), tokens, sum(held.values()))
            expected = sum(alpha**k for k in range(gamma + 1))
            return (len(drafting) * expected + len(joining)) / time

        best = max(range(policy.max_gamma + 1), key=rate) if drafting else 0
        for one in drafting:
            one.gamma = best
    elif kind in ("Budget", "Blocks"):
        own = {id(one): (sum(one.accepted) + 8 * policy.alpha) / (sum(one.tested) + 8) for one in drafting}
        chances = sorted(
            (-(own[id(one)] ** k), order, k)
            for order, one in enumerate(drafting)
            for k in range(1, policy.max_gamma + 1)
        )
        for _, order, _ in chances[: max(0, policy.tokens - len(drafting))]:
            drafting[order].gamma += 1
    else:
        for one in drafting:
            if kind == "Constant":
                one.gamma = policy.gamma
            elif kind == "Heuristic":
                one.gamma = one.length
            elif kind == "Bands":
                share = (sum(one.accepted) + 8 * policy.alpha) / (sum(one.drafted) + 8)
                one.gamma = min(
                    policy.max_gamma, 6 if share > 0.8 else 4 if share > 0.6 else 3 if share > 0.4 else 2
                )
            elif kind == "Classifier":
                right, v, one.gamma = one.accepts(policy.max_gamma), one.guesses(one.steps), 1
                on = [1 - policy.false_alarm] * right + [policy.missed] * (policy.max_gamma - right)
                while one.gamma < policy.max_gamma and v < math.prod(on[: one.gamma]):
                    one.gamma += 1
            else:
                one.gamma = one.accepts(min(policy.max_gamma, one.output - one.emitted - 1))


def serve(requests, cost, policy, max_batch, prefill):
    """Serve `requests`; returns (target passes of requests, drafted, accepted) over the whole run."""
    kind = type(policy).__name__
    drafts = getattr(policy, "max_gamma", 0) or policy.gamma > 0

    def prefilling(one):
        return prefill and one.steps == 0

    now, waiting, running, history = 0.0, list(requests), [], []
    passes = drafted = accepted_in_all = 0
    while waiting or running:
        if not running:
            now = max(now, waiting[0].arrival)
        while waiting and len(running) < max_batch and waiting[0].arrival <= now:
            one = waiting.pop(0)
            one.started, one.length = now, getattr(policy, "gamma", 0)
            running.append(one)
        choose(policy, running, prefilling, cost, history)
        joining = [one for one in running if prefilling(one)]
        prompts = sum(one.prompt for one in joining)
        verified = sum(one.gamma + 1 for one in running if not prefilling(one))
        held = [one.prompt + one.emitted for one in running if not prefilling(one)]
        time = seconds_of(cost.target, len(running), verified + prompts, sum(held))
        if kind == "Blocks" and held:
            seen = sum(min(length, cost.seen) for length in held)
            time += seconds_of(cost.draft, len(held), len(held) * policy.max_gamma, seen)
        for k in range(1, 1 if kind == "Blocks" else max(one.gamma for one in running) + 1):
            still = [min(one.prompt + one.emitted, cost.seen) for one in running if one.gamma >= k]
            time += seconds_of(cost.draft, len(still), len(still), sum(still))
        if joining and drafts:
            time += seconds_of(cost.draft, len(joining), prompts, 0.0)
        now += time
        at_once = tests = 0
        for one in running:
            accepted = one.accepts(one.gamma)
            tested = min(accepted + 1, one.gamma)
            one.accepted.append(accepted)
            one.tested.append(tested)
            one.drafted.append(one.gamma)
            if kind == "Heuristic" and not prefilling(one):
                one.length = one.length + 2 if accepted == one.gamma else one.length - 1
                one.length = min(max(one.length, 1), policy.max_gamma)
            if one.steps == 0:
                one.first = now
            one.steps += 1
            one.emitted = min(one.emitted + accepted + 1, one.output)
            if one.emitted == one.output:
                one.finished = now
            at_once, tests = at_once + accepted, tests + tested
            passes, drafted, accepted_in_all = passes + 1, drafted + one.gamma, accepted_in_all + accepted
        history.append((at_once, tests))
        running = [one for one in running if one.emitted < one.output]
    return passes, drafted, accepted_in_all
