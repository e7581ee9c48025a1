"""Stand-ins for engines that cannot be installed: each engine's signature and documented conventions, right,
and wrong.

Written from the signatures' descriptions in docs/engines and the adapters; `wrong=True` makes the mistake that the
docstring names."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # for tensors of a few numbers threads are only in each other's way


def residual(p, q):
    return torch.clamp(p - q, min=0.0)


def vllm(
    draft_token_ids, num_draft_tokens, max_spec_len, cu_num_draft_tokens, draft_probs, target_probs,
    bonus_token_ids, sampling_metadata, wrong=False,
):  # fmt: skip
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
    output_token_ids, cu_num_draft_tokens, draft_token_ids, draft_probs, target_probs, q, vocab_size,
    IS_NGRAM=False, wrong=False,
):  # fmt: skip
    """vllm-ascend's sample_recovered_tokens_pytorch; wrong: zeroes target_probs in place
    (vllm-ascend#2881)."""
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
    output_token_ids, cu_num_draft_tokens, draft_token_ids, draft_probs, target_probs, bonus_token_ids,
    recovered_token_ids, uniform_probs, is_greedy, max_spec_len, vocab_size, IS_NGRAM=False,
):  # fmt: skip
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
    draft_probs, draft_token_ids, target_probs, maybe_output_accepted_token_num=None,
    maybe_output_emitted_draft_token_num=None, deterministic=True, generator=None, seed=None, offset=None,
    wrong=False,
):  # fmt: skip
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
    predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token,
    retrive_next_sibling, uniform_samples, uniform_samples_for_final_sampling, target_probs, draft_probs,
    threshold_single=1.0, threshold_acc=1.0, deterministic=True, wrong=False,
):  # fmt: skip
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


class TrtHandler:
    """TensorRT-LLM's TwoModelSpecDecHandler; wrong: draws anew from the target, in a tree after the root."""

    def __init__(self, sampler, wrong=False):
        self.sampler, self.wrong = sampler, wrong

    def process_draft_tokens(
        self, request, new_tokens_tensor, new_tokens_list, finish_reasons, resource_manager=None
    ):
        tree = self.sampler.get_spec_tree_manager(resource_manager)
        sampled = [step[request.py_seq_slot][0] for step in new_tokens_list]
        assert new_tokens_tensor[:, request.seq_slot, 0].tolist() == sampled
        if tree is not None:
            path = self.path(request, sampled, tree.get_eagle_paths(request.py_seq_slot).tolist())
            request.py_num_accepted_draft_tokens_indices = [node - 1 for node in path[1:]]
            emitted = [sampled[node] for node in path[:-1]] + [sampled[0 if self.wrong else path[-1]]]
        else:
            coins = torch.rand(len(sampled), generator=self.sampler.get_generator("cpu"))
            tokens, logits = torch.tensor(request.py_draft_tokens), request.py_draft_logits
            q = None if logits is None else logits.softmax(-1)
            accepted, last = one_chain(tokens, request.py_target_probs, q, coins[1:], coins[0], self.wrong)
            emitted = [*tokens[:accepted].tolist(), last]
        for token in emitted:
            request.add_new_token(token, 0)
        return len(emitted) - 1

    def path(self, request, sampled, paths):
        """The nodes whose token was sampled at their parent."""
        nodes = [0]
        while True:
            children = {
                path[len(nodes)] for path in [[*path, -1] for path in paths] if path[: len(nodes)] == nodes
            }
            found = [
                node for node in children - {-1} if request.py_draft_tokens[node - 1] == sampled[nodes[-1]]
            ]
            if not found:
                return nodes
            nodes += found


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


# --- chains, one way of verifying in many signatures ------------------------------------------------------


def one_chain(tokens, p, q, coins, last_coin, wrong=False):
    """(accepted, last token) of one chain, from given coins; wrong: draws anew from the target."""
    for i, token in enumerate(tokens.tolist()):
        chance = 1.0 if q is None else float(q[i, token])
        if not float(coins[i]) * chance < float(p[i, token]):
            draft = torch.nn.functional.one_hot(tokens[i], p.shape[1]) if q is None else q[i]
            return i, by_inversion(p[i] if wrong else residual(p[i], draft), last_coin)
    return len(tokens), by_inversion(p[len(tokens)], last_coin)


def some_chains(tokens, p, q, coins, last_coins, wrong):
    rows = [None] * len(tokens) if q is None else q
    return [one_chain(*row, wrong) for row in zip(tokens, p, rows, coins, last_coins, strict=True)]


def columns(found):
    accepted, last = zip(*found, strict=True)
    return torch.tensor(accepted), torch.tensor(last)


def sglang_chain(
    predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token,
    retrive_next_sibling, uniform_samples, uniform_samples_for_final_sampling, target_probs, draft_probs,
    threshold_single, threshold_acc, deterministic, *, block_verification=False, wrong=False,
):  # fmt: skip
    """SGLang's chain_speculative_sampling_triton."""
    coins = uniform_samples, uniform_samples_for_final_sampling
    found = some_chains(candidates[:, 1:], target_probs, draft_probs, *coins, wrong)
    for b, (accepted, last) in enumerate(found):
        accept_token_num[b] = accepted
        accept_index[b, : accepted + 1] = retrive_index[b, : accepted + 1]
        predicts[retrive_index[b, :accepted]] = candidates[b, 1 : accepted + 1].int()
        predicts[retrive_index[b, accepted]] = last


def uno(
    candidates, target_ids, target_probs, draft_ids, draft_probs, accept_uniforms, final_uniforms, wrong=False
):
    """SGLang's _sparse_rejection_from_support, on supports that are whole vocabularies."""
    p = torch.zeros_like(target_probs).scatter(2, target_ids, target_probs)
    q = torch.zeros_like(draft_probs).scatter(2, draft_ids, draft_probs)
    assert (target_probs.diff(dim=-1) <= 0).all()
    return columns(some_chains(candidates[:, 1:], p, q, accept_uniforms, final_uniforms, wrong))


def dspark(
    *, candidates, target_logits, draft_logits, target_temperatures, draft_temperatures, noise,
    cutoff_verify_lens=None, wrong=False,
):  # fmt: skip
    """SGLang's blockwise_rejection_torch."""
    generator = torch.Generator().manual_seed(noise.key + int(noise.counter))
    coins = torch.rand(candidates.shape, generator=generator)
    p = (target_logits.view(*candidates.shape, -1) / target_temperatures[:, None, None]).softmax(-1)
    q = None if draft_logits is None else (draft_logits / draft_temperatures[:, None, None]).softmax(-1)
    found = some_chains(candidates[:, 1:], p, q, coins[:, 1:], coins[:, 0], wrong)
    return *columns(found), torch.zeros(len(candidates))


def lmdeploy(target_logits, draft_token_ids, bonus_token_ids, *, is_greedy, draft_probs=None, wrong=False):
    """LMDeploy's forward."""
    assert is_greedy is None
    steps, gamma = draft_token_ids.shape
    output = torch.full((steps, gamma + 1), -1)
    p = target_logits.softmax(-1)
    p = torch.cat([p, torch.nn.functional.one_hot(bonus_token_ids, p.shape[2])[:, None].float()], dim=1)
    coins, last = torch.rand(steps, gamma), torch.rand(steps)
    for b, (accepted, token) in enumerate(some_chains(draft_token_ids, p, draft_probs, coins, last, wrong)):
        output[b, : accepted + 1] = torch.tensor([*draft_token_ids[b, :accepted], token])
    return output, gamma - (output >= 0).sum(1) + 1, None


def dflash(draft_tokens, target_probs, draft_probs, draft_indices=None, wrong=False):
    """DFlash's _rejection_sample."""
    coins = torch.rand(draft_tokens.shape[1])
    accepted, last = one_chain(draft_tokens[0], target_probs[0], draft_probs[0], coins, torch.rand(()), wrong)
    return accepted, torch.tensor(last)


def flashspec(
    input_ids, draft_logprobs, target_logprobs, draft_token_ids, gamma, *, generator=None, wrong=False
):
    """flashspec's rejection_sample: no token after a chain that is accepted."""
    assert draft_logprobs.shape == target_logprobs.shape
    coins = torch.rand((len(input_ids), gamma + 1), generator=generator)
    p = torch.cat([target_logprobs, target_logprobs[:, -1:]], dim=1).exp()
    found = some_chains(draft_token_ids, p, draft_logprobs.exp(), coins[:, 1:], coins[:, 0], wrong)
    output = torch.full_like(draft_token_ids, -1)
    for b, (accepted, last) in enumerate(found):
        output[b, :accepted] = draft_token_ids[b, :accepted]
        if accepted < gamma:
            output[b, accepted] = last
    return output, columns(found)[0], 0.0


def vllm2(
    target_logits, draft_logits, draft_sampled, cu_num_logits, pos, idx_mapping, expanded_idx_mapping,
    expanded_local_pos, temperature, seed, num_speculative_steps, use_block_verification=False, wrong=False,
):  # fmt: skip
    """vLLM's rejection_sample of model runner V2; a request's noise is that of its seed."""
    steps = len(cu_num_logits) - 1
    assert expanded_idx_mapping.tolist() == sorted(expanded_idx_mapping.tolist())
    assert (expanded_local_pos == pos).all()
    output = torch.zeros((steps, num_speculative_steps + 1), dtype=torch.long)
    number = torch.zeros(steps, dtype=torch.int32)
    for b, request in enumerate(idx_mapping.tolist()):
        start, end = cu_num_logits[b : b + 2].tolist()
        generator = torch.Generator().manual_seed(int(seed[request]))
        coins = torch.rand(end - start, generator=generator)
        tokens, p = draft_sampled[start + 1 : end], target_logits[start:end].softmax(-1)
        q = None if draft_logits is None else draft_logits[request].softmax(-1)
        accepted, last = one_chain(tokens, p, q, coins[1:], coins[0], wrong)
        output[b, : accepted + 1] = torch.tensor([*tokens[:accepted], last])
        number[b] = accepted + 1
    return output, number


def deepspec(
    *, target_model, proposal, position_ids, start, past_key_values_target, temperature,
    max_proposal_tokens, wrong=False,
):  # fmt: skip
    """DeepSpec's verify_draft_tokens."""
    tokens = proposal.verify_input_ids[0, 1:]
    p = (target_model(input_ids=proposal.verify_input_ids).logits[0] / temperature).softmax(-1)
    coins = torch.rand(proposal.draft_token_count)
    accepted, last = one_chain(tokens, p, proposal.draft_probs[0], coins, torch.rand(()), wrong)
    return SimpleNamespace(committed_tokens=torch.tensor([[*tokens[:accepted], last]]))


def shreyansh(model, prefix_ids, draft_ids, draft_probs, generator=None, wrong=False):
    """shreyansh26's probabilistic_verify."""
    p = model(torch.tensor([[*prefix_ids, *draft_ids]])).logits[0][len(prefix_ids) - 1 :].softmax(-1)
    coins = torch.rand(len(draft_ids) + 1, generator=generator)
    accepted, last = one_chain(torch.tensor(draft_ids), p, draft_probs, coins[1:], coins[0], wrong)
    return SimpleNamespace(emitted_ids=[*draft_ids[:accepted], last])


def reject_children(target_probs, proposals, uniforms, final_uniforms, wrong=False):
    """EAGLE-Harness's reject_children, for one node; wrong: a rejected sibling stays in the target."""
    p, q = target_probs[0].double(), proposals.probs[0].double()
    for child, token in enumerate(proposals.tokens[0].tolist()):
        if uniforms[0, child] * q[token] < p[token]:
            return torch.tensor([token]), torch.tensor([child])
        if not wrong:
            p = residual(p, q)
            p = p / p.sum()
        q = q.clone()
        q[token] = 0.0
        q = q / q.sum()
    return torch.tensor([by_inversion(p, final_uniforms[0])]), torch.tensor([-1])
