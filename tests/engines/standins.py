"""Stand-ins for engines that cannot be installed: each engine's signature and documented conventions, right,
and wrong.

Written from the signatures' descriptions in the adapters; `wrong=True` makes the mistake that the docstring
names.
"""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # for tensors of a few numbers threads are only in each other's way


def residual(p, q):
    return torch.clamp(p - q, min=0.0)


def vllm(
    draft_token_ids,
    num_draft_tokens,
    max_spec_len,
    cu_num_draft_tokens,
    draft_probs,
    target_probs,
    bonus_token_ids,
    sampling_metadata,
    wrong=False,
):
    """vLLM V1's rejection_sample; wrong: takes the cumulative sum for one that starts with 0."""
    assert draft_token_ids.is_contiguous()
    assert target_probs.is_contiguous()
    assert sampling_metadata.all_random
    assert not sampling_metadata.all_greedy
    output = torch.full((len(num_draft_tokens), max_spec_len + 1), -1, dtype=torch.int32)
    for request, count in enumerate(num_draft_tokens):
        generator = sampling_metadata.generators.get(request)
        uniforms = torch.rand(count, dtype=torch.float64, generator=generator)
        race = torch.empty(target_probs.shape[1]).exponential_(generator=generator)
        end = int(cu_num_draft_tokens[request])
        start = min(end, len(draft_token_ids) - count) if wrong else end - count
        for i in range(count):
            token, row = int(draft_token_ids[end - count + i]), target_probs[start + i]
            if draft_probs is None:
                q, excess = 1.0, row.clone()
                excess[token] = 0.0
            else:
                q, excess = float(draft_probs[start + i, token]), residual(row, draft_probs[start + i])
            if q > 0 and float(row[token]) / q >= uniforms[i]:
                output[request, i] = token
            else:
                output[request, i] = int((excess / race).argmax())
                break
        else:
            output[request, count] = bonus_token_ids[request, 0]
    return output


def ascend_recovered(
    output_token_ids,
    cu_num_draft_tokens,
    draft_token_ids,
    draft_probs,
    target_probs,
    q,
    vocab_size,
    IS_NGRAM=False,
    wrong=False,
):
    """vllm-ascend's sample_recovered_tokens_pytorch; wrong: zeroes target_probs in place
    (vllm-ascend#2881).
    """
    request = 0
    for i, token in enumerate(draft_token_ids.tolist()):
        while i >= cu_num_draft_tokens[request]:
            request += 1
        if IS_NGRAM:
            excess = target_probs[i] if wrong else target_probs[i].clone()
            excess[token] = 0.0
        else:
            excess = residual(target_probs[i], draft_probs[i])
        assert excess.shape == (vocab_size,)
        output_token_ids[i] = int((excess / q[request]).argmax())


def ascend_sample(
    output_token_ids,
    cu_num_draft_tokens,
    draft_token_ids,
    draft_probs,
    target_probs,
    bonus_token_ids,
    recovered_token_ids,
    uniform_probs,
    is_greedy,
    max_spec_len,
    vocab_size,
    IS_NGRAM=False,
):
    """vllm-ascend's rejection_random_sample_pytorch."""
    assert not is_greedy.any()
    start = 0
    for request, end in enumerate(cu_num_draft_tokens.tolist()):
        for i in range(start, end):
            token = draft_token_ids[i]
            q = 1.0 if IS_NGRAM else draft_probs[i, token]
            if q > 0 and target_probs[i, token] / q >= uniform_probs[i]:
                output_token_ids[request, i - start] = token
            else:
                output_token_ids[request, i - start] = recovered_token_ids[i]
                break
        else:
            output_token_ids[request, end - start] = bonus_token_ids[request, 0]
        start = end


def flashinfer(
    draft_probs,
    draft_token_ids,
    target_probs,
    maybe_output_accepted_token_num=None,
    maybe_output_emitted_draft_token_num=None,
    deterministic=True,
    generator=None,
    seed=None,
    offset=None,
    wrong=False,
):
    """FlashInfer's chain_speculative_sampling; wrong: the roles of the two models exchanged in the test."""
    batch, gamma = draft_token_ids.shape
    output = torch.full((batch, gamma + 1), -1, dtype=torch.int32)
    uniforms = torch.rand((batch, gamma + 1), generator=generator)
    for b in range(batch):
        i = 0
        while i < gamma:
            token = int(draft_token_ids[b, i])
            p, q = draft_probs[b, i, token], target_probs[b, i, token]
            p, q = (q, p) if wrong else (p, q)
            if not uniforms[b, i] * p < q:
                break
            output[b, i] = token
            i += 1
        weights = residual(target_probs[b, i], draft_probs[b, i]) if i < gamma else target_probs[b, gamma]
        output[b, i] = by_inversion(weights, uniforms[b, gamma])
    return output, (output >= 0).sum(1), (output >= 0).sum(1) - 1


def sglang(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    uniform_samples,
    uniform_samples_for_final_sampling,
    target_probs,
    draft_probs,
    threshold_single=1.0,
    threshold_acc=1.0,
    deterministic=True,
    wrong=False,
):
    """SGLang's tree_speculative_sampling_target_only; wrong: siblings do not add up."""
    for b in range(len(candidates)):
        node, accepted = 0, 0
        accept_index[b, 0] = last = int(retrive_index[b, 0])
        while True:
            coin, mass, child = float(uniform_samples[b, node]), 0.0, int(retrive_next_token[b, node])
            while child != -1:
                token = int(candidates[b, child])
                p = float(target_probs[b, node, token])
                mass = p if wrong else mass + p
                if p > 0 and (coin < mass / threshold_acc or p >= threshold_single):
                    break
                draft_probs[b, node, token] = p
                child = int(retrive_next_sibling[b, child])
            if child == -1:
                break
            predicts[last] = token
            accepted += 1
            accept_index[b, accepted] = last = int(retrive_index[b, child])
            node = child
        accept_token_num[b] = accepted
        weights = residual(target_probs[b, node], draft_probs[b, node])
        predicts[last] = by_inversion(weights, uniform_samples_for_final_sampling[b])


def trt_rejected(draft_probs, target_probs, generator, draft_tokens):
    """TensorRT-LLM's get_rejected_indices: p is the draft."""
    index = torch.arange(len(draft_probs))
    p, q = draft_probs[index, draft_tokens], target_probs.squeeze(0)[index, draft_tokens]
    return (torch.rand(len(p), generator=generator) > q / p).nonzero()


def trt_recovered(draft_probs, target_probs, generator, num_accepted, wrong=False):
    """TensorRT-LLM's sample_rejected; wrong: draws anew from the target."""
    p, q = draft_probs[num_accepted], target_probs[num_accepted]
    return int(torch.multinomial(q if wrong else residual(q, p), 1, generator=generator))


def eagle2(logits, candidates, logits_processor, wrong=False):
    """EAGLE-2's evaluate_posterior; wrong: a rejected sibling stays in the target."""
    path, depth = 0, candidates.shape[1] - 1
    alike = torch.ones(len(candidates), dtype=torch.bool)
    for i in range(depth + 1):
        p = logits_processor(None, logits[path, i][None])[0].softmax(0)
        if i == depth:
            break
        tried = []
        for j in alike.nonzero()[:, 0].tolist():
            token = int(candidates[j, i + 1])
            if token == -1 or token in tried:
                continue
            if random.random() < p[token]:
                path, alike = j, alike & (candidates[:, i + 1] == token)
                break
            tried.append(token)
            if not wrong:
                p[token] = 0.0
                p = p / p.sum()
        else:
            break
    return torch.tensor(path), i, p


def naive_speculate(target_dists, proposal_dists, candidate_tokens, wrong=False):
    """naive-speculate's speculative_sampling; wrong: draws anew from the target."""
    index = torch.arange(len(candidate_tokens))
    p, q = target_dists[index, candidate_tokens], proposal_dists[index, candidate_tokens]
    rejected = (torch.rand(len(p)) >= p / (q + 1e-9)).nonzero()
    n = rejected[0, 0] if len(rejected) else torch.tensor(len(p))
    weights = target_dists[n]
    if n < len(p) and not wrong:
        weights = residual(weights, proposal_dists[n])
    return n, torch.multinomial(weights + 1e-9, 1).squeeze()


def by_inversion(weights, u):
    cdf = weights.double().cumsum(0)
    return int(np.searchsorted(cdf.numpy(), float(u) * float(cdf[-1]), side="right"))
