"""The compiled event loop of the server, and the policies' choices within it.

All that is random is drawn outside, or is number s of request i: uniform `s % 48` of the block `s // 48` of
that request, so that neither the batch nor the policy changes it. `tests/helpers/naive_batch.py` is the same
server written from the documentation alone."""

import math
from heapq import heapify, heapreplace
from typing import NamedTuple

import numpy as np

from specsim.core._kernels import kernel
from specsim.core._streams import Purpose, fill_uniforms
from specsim.core._types import Floats
from specsim.planning._policies._kinds import PRIOR_TESTS

#: Uniforms of a request that are drawn at once, as rows × columns of a buffer.
ROWS, COLUMNS = 3, 16
BLOCK = ROWS * COLUMNS
VERIFY, DRAFT = int(Purpose.VERIFY), int(Purpose.DRAFT)
#: The codes of policies; `parameters[0]` is the longest draft of each.
CONSTANT, GOODPUT, BUDGET, HEURISTIC, ORACLE, BANDS, CLASSIFIER, BLOCKS = range(8)
#: What `serve` adds up.
TOTALS = (
    "iterations", "request_steps", "tokens", "drafted", "accepted", "finished", "busy", "batch_seconds",
    "seconds",
)  # fmt: skip


@kernel
def pass_seconds(cost, sequences, tokens, context):
    """The time of a pass over `tokens` of `sequences` with `context` cached tokens; `cost` as `PassTime`."""
    fixed = cost[0] + cost[1] * sequences + cost[2] * tokens
    experts = -cost[4] * math.expm1(tokens * cost[5]) if cost[4] > 0.0 else 0.0
    return fixed + max(cost[3] + experts + cost[6] * context, cost[7] * tokens)


@kernel
def accepted_tokens(u, alpha, survival, most):
    """Drafted tokens, of `most`, that are accepted: the largest k with u < P(at least k accepted)."""
    k, probability = 0, alpha
    while k < most and u < (survival[k] if survival.size else probability):
        k += 1
        probability *= alpha
    return k


@kernel
def best_length(most, alpha, drafting, joining, prompt_tokens, context, draft_context, target, draft):
    """The smallest γ of the largest expected tokens per second, the same for all requests (SmartSpec)."""
    each = pass_seconds(draft, drafting, drafting, draft_context)
    sequences = drafting + joining
    expected = power = 1.0
    best, highest = 0, -1.0
    for gamma in range(most + 1):
        if gamma:
            power *= alpha
            expected += power
        tokens = drafting * (gamma + 1) + prompt_tokens
        seconds = gamma * each + pass_seconds(target, sequences, tokens, context)
        rate = (drafting * expected + joining) / seconds
        if rate > highest:
            best, highest = gamma, rate
    return best


@kernel
def classified_length(v, accepted, most, missed, false_alarm):
    """The tokens that are drafted, by a uniform v, until one is taken for rejected.

    Drafting continues with probability 1 - `false_alarm` after each of `accepted` tokens, then `missed`."""
    going_on = 1.0
    for k in range(1, most + 1):
        going_on *= 1.0 - false_alarm if k <= accepted else missed
        if v >= going_on:
            return k
    return most


@kernel
def share_budget(left, most, known, order, running, joins, gammas):
    """Give `left` tokens one by one to the request whose next one is likeliest accepted, or the oldest."""
    heap = [
        (-known[slot, 0] / known[slot, 1], j) for j, slot in enumerate(order[:running]) if not joins[slot]
    ]
    heapify(heap)
    while left > 0 and heap[0][0] < 0.0:
        weight, j = heap[0]
        slot = order[j]
        gammas[slot] += 1
        left -= 1
        rate = known[slot, 0] / known[slot, 1]
        heapreplace(heap, (weight * rate if gammas[slot] < most else 0.0, j))


class Setup(NamedTuple):
    """A server, and the acceptance of drafts."""

    survival: Floats  #: [γ] chances of accepting at least 1, 2, … tokens; empty where requests have rates
    target: Floats  #: the coefficients of its `PassTime`
    draft: Floats
    draft_context: float
    max_batch: int
    prefill: bool
    policy: int  #: its code
    parameters: Floats


@kernel
def serve(drawn, setup, counted, key, stop, started, first, finished, totals, lengths_chosen):
    """Serve the requests `drawn` in their order; fills `started`, `first`, `finished`, and the counted
    `totals` and `lengths_chosen`: steps of requests that had joined, by their drafted tokens.

    `counted` has the requests with whose admission counting begins and ends, and whether serving ends there.
    The server stops anywhere once `stop[0]` is set."""
    arrivals, prompts, outputs, alphas, blocks = drawn
    survival, target, draft, draft_context, max_batch, prefill, policy, parameters = setup
    counted_from, counted_to, until_counted = counted
    k0, k1 = key
    requests = arrivals.size
    most = int(parameters[0])
    order = np.arange(max_batch)  # the slots of the running requests, then those that are free
    request = np.zeros(max_batch, np.int64)
    emitted = np.zeros(max_batch, np.int64)
    step = np.zeros(max_batch, np.int64)
    gammas = np.zeros(max_batch, np.int64)
    lengths = np.zeros(max_batch, np.int64)
    joins = np.zeros(max_batch, np.bool_)
    known = np.zeros((max_batch, 3))  # accepted, tested and drafted tokens
    ended = np.zeros(max_batch, np.bool_)
    uniforms = np.empty((max_batch, ROWS, COLUMNS))
    guesses = np.empty((max_batch if policy == CLASSIFIER else 0, ROWS, COLUMNS))
    verify = np.zeros(max_batch)  # the uniforms of this iteration
    guess = np.zeros(max_batch)
    by_length = np.zeros(most + 2, np.int64)
    context_by_length = np.zeros(most + 2)
    window = int(parameters[1]) if policy == GOODPUT else 1
    recent = np.zeros((window, 2))
    recent_accepted, recent_tested = 0.0, 0.0
    prior = parameters[-1] if policy in (GOODPUT, BUDGET, BLOCKS, BANDS) else 0.0  # alpha, their last
    now, iterations, running, queued = 0.0, 0, 0, 0
    while (queued < requests or running) and stop[0] == 0:
        if running == 0 and arrivals[queued] > now:
            if counted_from < queued <= counted_to:
                totals[8] += arrivals[queued] - now
            now = arrivals[queued]
        while queued < requests and running < max_batch and arrivals[queued] <= now:
            slot = order[running]
            request[slot], emitted[slot], step[slot], joins[slot] = queued, 0, 0, prefill
            lengths[slot] = int(parameters[1]) if policy == HEURISTIC else most
            known[slot, 0] = PRIOR_TESTS * prior
            known[slot, 1:] = PRIOR_TESTS
            started[queued] = now
            queued += 1
            running += 1
        if until_counted and queued > counted_to:
            return
        # the numbers of this iteration
        joining, prompt_tokens, context, seen = 0, 0, 0.0, 0.0
        for j in range(running):
            slot = order[j]
            i = request[slot]
            gammas[slot] = 0
            if joins[slot]:
                joining += 1
                prompt_tokens += prompts[i]
            else:
                held = prompts[i] + emitted[slot]
                context += held
                seen += min(float(held), draft_context)
            s = step[slot] % BLOCK
            if s == 0:
                column = (blocks[i] + step[slot] // BLOCK) * COLUMNS
                fill_uniforms(k0, k1, VERIFY, column, uniforms[slot])
                if policy == CLASSIFIER:
                    fill_uniforms(k0, k1, DRAFT, column, guesses[slot])
            verify[slot] = uniforms[slot, s // COLUMNS, s % COLUMNS]
            if policy == CLASSIFIER:
                guess[slot] = guesses[slot, s // COLUMNS, s % COLUMNS]
        drafting = running - joining
        # the draft lengths
        if policy in (CONSTANT, HEURISTIC, ORACLE, BANDS, CLASSIFIER):
            for j in range(running):
                slot = order[j]
                i = request[slot]
                if joins[slot]:
                    continue
                gammas[slot] = lengths[slot]
                if policy == ORACLE:
                    room = min(most, outputs[i] - emitted[slot] - 1)
                    gammas[slot] = accepted_tokens(verify[slot], alphas[i], survival, room)
                elif policy == CLASSIFIER:
                    right = accepted_tokens(verify[slot], alphas[i], survival, most)
                    gammas[slot] = classified_length(guess[slot], right, most, parameters[1], parameters[2])
                elif policy == BANDS:
                    share = known[slot, 0] / known[slot, 2]  # of drafted tokens that were accepted
                    length = 6 if share > 0.8 else 4 if share > 0.6 else 3 if share > 0.4 else 2
                    gammas[slot] = min(length, most)
        elif policy == GOODPUT and drafting:
            alpha = (recent_accepted + PRIOR_TESTS * prior) / (recent_tested + PRIOR_TESTS)
            chosen = best_length(most, alpha, drafting, joining, prompt_tokens, context, seen, target, draft)
            for j in range(running):
                gammas[order[j]] = 0 if joins[order[j]] else chosen
        elif policy in (BUDGET, BLOCKS) and most > 0 and drafting:
            share_budget(int(parameters[1]) - drafting, most, known, order, running, joins, gammas)
        # its time: draft pass k is over the requests with at least k drafted tokens, or one over whole blocks
        by_length[:] = 0
        context_by_length[:] = 0.0
        drafted = 0
        for j in range(running):
            slot = order[j]
            gamma = gammas[slot]
            drafted += gamma
            if not joins[slot]:
                by_length[gamma] += 1
            if gamma:
                context_by_length[gamma] += min(float(prompts[request[slot]] + emitted[slot]), draft_context)
        seconds = 0.0
        sequences, cached = 0, 0.0
        if policy == BLOCKS and drafting:
            seconds += pass_seconds(draft, drafting, drafting * most, seen)
        for gamma in range(0 if policy == BLOCKS else most, 0, -1):
            sequences += by_length[gamma]
            cached += context_by_length[gamma]
            if sequences:
                seconds += pass_seconds(draft, sequences, sequences, cached)
        if joining and (policy != CONSTANT or most > 0):
            seconds += pass_seconds(draft, joining, prompt_tokens, 0.0)
        seconds += pass_seconds(target, running, drafting + drafted + prompt_tokens, context)
        end = now + seconds
        # what it emits
        kept, emitted_now, accepted_now, tested_now, done = 0, 0, 0, 0, 0
        for j in range(running):
            slot = order[j]
            i, gamma = request[slot], gammas[slot]
            accepted = accepted_tokens(verify[slot], alphas[i], survival, gamma)
            tested = min(accepted + 1, gamma)
            tokens = min(accepted + 1, outputs[i] - emitted[slot])
            emitted_now += tokens
            accepted_now += accepted
            tested_now += tested
            known[slot, 0] += accepted
            known[slot, 1] += tested
            known[slot, 2] += gamma
            if policy == HEURISTIC and not joins[slot]:
                grown = lengths[slot] + 2 if accepted == gamma else lengths[slot] - 1
                lengths[slot] = min(max(grown, 1), most)
            if emitted[slot] == 0:
                first[i] = end
            joins[slot] = False
            emitted[slot] += tokens
            step[slot] += 1
            ended[j] = emitted[slot] == outputs[i]
            if ended[j]:
                finished[i] = end
                done += 1
        if policy == GOODPUT:
            at = iterations % window
            recent_accepted += accepted_now - recent[at, 0]
            recent_tested += tested_now - recent[at, 1]
            recent[at, 0] = accepted_now
            recent[at, 1] = tested_now
        iterations += 1
        if counted_from < queued <= counted_to:
            totals[0] += 1
            totals[1] += running
            totals[2] += emitted_now
            totals[3] += drafted
            totals[4] += accepted_now
            totals[5] += done
            totals[6] += seconds
            totals[7] += seconds * running
            totals[8] += seconds
            lengths_chosen += by_length[: most + 1]
        if done:  # the others keep their order
            for j in range(running):
                slot = order[j]
                if not ended[j]:
                    order[j] = order[kept]
                    order[kept] = slot
                    kept += 1
            running = kept
        now = end
