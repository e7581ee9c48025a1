"""Every verification rule a second time, one step in plain Python: what the row kernels are compared with.

Written from the docstrings of the rules, with lists, sorting and recursion and without regard to cost, so
that each can be held against its docstring by reading. `NAIVE[name](parents, tokens, p, q, u, **values)`
gives the list of tokens that a step emits: token j sits at node j + 1 below node parents[j]; p[node] and
q[node] are rows, as lists; u[j] is the uniform of node j + 1 and u[-1] draws the last token, unless the rule
says otherwise.

A draw is by inverse CDF. To accept with probability `chance` is to find the uniform below it; a chance may
exceed 1. Where rounding leaves nothing to draw from, the token comes from p. Entries must not be so small
that p/q overflows."""

from functools import lru_cache
from itertools import accumulate, combinations
from math import comb, exp, inf, log, prod, sqrt
from operator import mul

from specsim.core.distributions import inverse_cdf as draw

# --- rows ------------------------------------------------------------------------------------------------


def positive_part(p, q):
    return [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]


def normalised(row):
    mass = sum(row)
    return [weight / mass for weight in row] if mass else row


def residual(p, q):
    return normalised(positive_part(p, q))


def times(scale, row):
    return [scale * weight for weight in row]


def without(row, gone):
    return [0.0 if token in gone else weight for token, weight in enumerate(row)]


def only(row, kept):
    return [weight if token in kept else 0.0 for token, weight in enumerate(row)]


def one_hot(size, token):
    return [1.0 if y == token else 0.0 for y in range(size)]


def ranked(p):
    """Tokens from the most probable down, the lower one first among ties."""
    return sorted(range(len(p)), key=lambda token: (-p[token], token))


def share(part, whole):
    """part/whole; 0/0 is 1."""
    return part / whole if whole else 1.0


def divergence(p, q):
    """KL(p‖q) in nats."""
    return sum((a * log(a / b) if b else inf) for a, b in zip(p, q, strict=True) if a)


# --- along a chain, token by token -----------------------------------------------------------------------


def along_a_chain(chance, recovered, bonus=lambda p, q, **values: p):
    """chance(p, q, x) that x is accepted, the law recovered(p, q, x) of what replaces it, the law bonus(p,
    q)."""

    def step(parents, tokens, p, q, u, **values):
        for i, x in enumerate(tokens):
            if not u[i] < chance(p[i], q[i], x, **values):
                law = recovered(p[i], q[i], x, **values)
                return [*tokens[:i], draw(law if any(law) else p[i], u[-1])]
        return [*tokens, draw(bonus(p[-1], q[-1], **values), u[-1])]

    return step


def of_residual(p, q, x, **values):
    return residual(p, q)


def largest_ratio(p, q):
    """M = max p/q over p > 0."""
    return max(a / b if b else inf for a, b in zip(p, q, strict=True) if a)


def cut_unless(kept, draft=lambda q, value: q):
    """The standard rule against draft(q, value) where kept(q, x, value), else a token from p ends the step."""

    def chance(p, q, x, **values):
        (value,) = values.values()
        return p[x] / draft(q, value)[x] if kept(q, x, value) else 0.0

    def recovered(p, q, x, **values):
        (value,) = values.values()
        return residual(p, draft(q, value)) if kept(q, x, value) else p

    return along_a_chain(chance, recovered)


def intersection(q, shared):
    """The first `shared`·V tokens of q."""
    return only(q, [x for x in range(len(q)) if x < shared * len(q)])


def in_intersection(q, x, shared):
    return x < shared * len(q)


def sampler_match(parents, tokens, p, q, u):
    drawn = [draw(row, coin) for row, coin in zip(p, u, strict=True)]
    agreed = next((i for i, x in enumerate(tokens) if x != drawn[i]), len(tokens))
    return drawn[: agreed + 1]


def von_neumann(parents, tokens, p, q, u, slack):
    """The uniforms after those of the drafted tokens are pairs: to draw a proposal, and to test it."""
    more = u[len(tokens) : -1]
    for i, x in enumerate(tokens):
        envelope = slack * largest_ratio(p[i], q[i])
        passing = [a / (envelope * b) if b else 0.0 for a, b in zip(p[i], q[i], strict=True)]
        if not u[i] < passing[x]:
            proposals = [(draw(q[i], v), coin) for v, coin in zip(more[::2], more[1::2], strict=True)]
            passed = [y for y, coin in proposals if coin < passing[y]]
            return [*tokens[:i], passed[0] if passed else draw(p[i], u[-1])]
    return [*tokens, draw(p[-1], u[-1])]


def gumbel(parents, tokens, p, q, u):
    """At each position V uniforms are exponentials, that of the drafted token the noise m."""
    size, emitted = len(p[0]), []
    for i, x in enumerate(tokens):
        e = [-log(1 - v) for v in u[i * size : (i + 1) * size]]
        noise = [e[x] * q[i][y] + (e[y] if y != x else 0.0) for y in range(size)]
        emitted.append(min((y for y in range(size) if p[i][y]), key=lambda y: noise[y] / p[i][y]))
        if emitted[-1] != x:
            return emitted
    return [*emitted, draw(p[-1], u[-1])]


# --- along a chain, from its end -------------------------------------------------------------------------


def ratios(tokens, p, q):
    return [a[x] / b[x] for x, a, b in zip(tokens, p, q, strict=False)]


def scales(tokens, p, q):
    """b_0 … b_γ."""
    return list(accumulate(ratios(tokens, p, q), lambda b, ratio: min(1.0, b * ratio), initial=1.0))


def chances(tokens, p, q):
    """h_1 … h_γ."""
    b = scales(tokens, p, q)
    left = [sum(positive_part(times(b[i], p[i]), q[i])) for i in range(len(tokens))]
    return [*(share(left[i], left[i] + 1 - b[i]) for i in range(1, len(tokens))), b[-1]]


def cut(tokens, p, q, u, n, scale):
    """The first n tokens, and one from (scale·p - q)₊, or after the whole draft from p."""
    law = positive_part(times(scale, p[n]), q[n]) if n < len(tokens) else p[n]
    return [*tokens[:n], draw(law if any(law) else p[n], u[-1])]


def longest(tokens, p, q, u):
    """The largest i with η_i < h_i, or 0."""
    passed = [coin < h for coin, h in zip(u, chances(tokens, p, q), strict=False)]
    return max([i for i, kept in enumerate(passed, 1) if kept], default=0)


def block(parents, tokens, p, q, u):
    n = longest(tokens, p, q, u)
    return cut(tokens, p, q, u, n, scales(tokens, p, q)[n])


def stepping_back(scaled):
    """scaled(J_0 … J_γ) are the ratios by which target and draft are compared."""

    def step(parents, tokens, p, q, u):
        r = scaled(list(accumulate(ratios(tokens, p, q), mul, initial=1.0)))

        def kept(i):
            if i == len(tokens):
                return u[i - 1] < r[i]
            target = times(r[i], p[i])
            more, less = sum(positive_part(target, q[i])), sum(positive_part(q[i], target))
            return i == 0 or u[i - 1] < share(more, max(more, less))

        n = next(i for i in range(len(tokens), -1, -1) if kept(i))
        return cut(tokens, p, q, u, n, r[n])

    return step


# --- down a tree -----------------------------------------------------------------------------------------


def down_a_tree(choose, width=lambda size: 1):
    """choose(p, q, children, u): (the token accepted among `children`, None), or (None, the law of what
    follows). Of each node there are width(V) uniforms, one after the other.

    Nodes are told apart by their path, the tokens that lead to them, so that those drafted alike are one."""

    def step(parents, tokens, p, q, u, **values):
        paths = [()]
        for parent, x in zip(parents, tokens, strict=True):
            paths.append((*paths[parent], x))
        emitted = ()
        while True:
            node = paths.index(emitted)
            below = [j for j in range(len(tokens)) if paths[j + 1][:-1] == emitted]
            if not below:
                return [*emitted, draw(p[node], u[-1])]
            w = width(len(p[0]))
            children = [tokens[j] for j in below]
            coins = [u[j] if w == 1 else u[j * w : (j + 1) * w] for j in below]
            accepted, law = choose(p[node], q[node], children, coins, **values)
            if accepted is None:
                return [*emitted, draw(law if any(law) else p[node], u[-1])]
            emitted = (*emitted, accepted)

    return step


def recursive_rejection(p, q, children, u):
    for x, coin in zip(children, u, strict=True):
        if coin < p[x] / q[x]:
            return x, None
        p = residual(p, q)
    return None, p


def without_replacement(p, q, children, u):
    for x, coin in zip(children, u, strict=True):
        if q[x] == 0:
            break
        if coin < p[x] / q[x]:
            return x, None
        p, q = residual(p, q), normalised(without(q, [x]))
    return None, p


def deterministic_children(p, q, children, u):
    for x, coin in zip(children, u, strict=True):
        if coin < p[x]:
            return x, None
        p = normalised(without(p, [x]))
    return None, p


def matched(law, children, u):
    """Draw from `law` with the second uniform: a child may carry that token. One child alone has none, and
    does not."""
    if len(children) == 1 or not any(law):
        return None, law
    y = draw(law, u[1])
    return (y, None) if y in children else (None, one_hot(len(law), y))


def naive_matching(p, q, children, u):
    y = draw(p, u[0])
    return (y, None) if y in children else (None, one_hot(len(p), y))


def gumbel_list(p, q, children, u):
    """Each child has V uniforms, exponentials, of which that of its own token is the noise m."""
    best = inf, None
    for x, coins in zip(children, u, strict=True):
        e = [-log(1 - v) for v in coins]
        noise = [e[x] * b + (e[y] if y != x else 0.0) for y, b in enumerate(q)]
        best = min(best, *((noise[y] / a, y) for y, a in enumerate(p) if a), key=lambda pair: pair[0])
    y = best[1]
    return (y, None) if y in children else (None, one_hot(len(p), y))


def token_tree(p, q, children, u):
    """The first uniform tests the first child, the second draws the recovered token."""
    x = children[0]
    return (x, None) if u[0] < p[x] / q[x] else matched(residual(p, q), children, u)


def greedy_multi_draft(p, q, children, u):
    """The first uniform tests the last child, the second draws the recovered token."""
    *top, x = children
    rest = without(q, top)
    draft = normalised(rest if any(rest) else without([1.0] * len(q), top))
    return (x, None) if u[0] < p[x] / draft[x] else matched(residual(p, draft), children, u)


def k_seq_with(rho_of, count=len):
    """K-SEQ with rho_of(p, q, K), K the `count` of the children."""

    def choose(p, q, children, u):
        drafts = count(children)
        rho = rho_of(p, q, drafts)
        for x, coin in zip(children, u, strict=True):
            if coin < p[x] / (rho * q[x]):
                return x, None
        kept = [min(b, a / rho) for a, b in zip(p, q, strict=True)]
        b = sum(kept)
        return None, positive_part(p, times((1 - (1 - b) ** drafts) / b if b else drafts, kept))

    return choose


def least_rho(p, q, drafts):
    """ρ* by bisection, and the kernel's margin on the side where K-SEQ is valid."""
    low, high = 1.0, float(drafts)
    for _ in range(60):
        rho = (low + high) / 2
        b = sum(min(weight, a / rho) for a, weight in zip(p, q, strict=True))
        low, high = (low, rho) if 1 - (1 - b) ** drafts <= rho * b else (rho, high)
    return min(high * (1 + 1e-12), drafts)


# --- up a tree -------------------------------------------------------------------------------------------


def up_a_tree(replaced, update=lambda s, w, draft: s / (s + 1 - w) if s else 0.0):
    """update(S, w, q(c)) is w of a node whose child c was given up."""

    def step(parents, tokens, p, q, u):
        def visit(node, w):
            """The tokens emitted after `node`, or None if all of its subtree is given up."""
            target = p[node]
            children = [j for j, parent in enumerate(parents) if parent == node]
            draft = q[node] if children else None
            for j in children:
                x = tokens[j]
                if draft[x]:
                    emitted = visit(j + 1, min(1.0, w * target[x] / draft[x]))
                    if emitted:
                        return [x, *emitted]
                    left = positive_part(times(w, target), draft)
                    target, w = normalised(left) if any(left) else target, update(sum(left), w, draft[x])
                    draft = draft if replaced else normalised(without(draft, [x]))
            return [draw(target, u[-1])] if node == 0 or u[node - 1] < w else None

        return visit(0, 1.0)

    return step


def unified(parents, tokens, p, q, u):
    """Weights as probabilities of acceptance in all, each divided by the chance that the node is visited."""

    def visit(node, w):
        """The tokens emitted after `node`, or None if all of its subtree is given up."""
        *first, last = [j for j, parent in enumerate(parents) if parent == node] or [None]
        law, own = p[node], w
        if last is not None:
            given = [tokens[j] for j in first]
            rest = without(q[node], given)
            draft = normalised(rest if any(rest) else without([1.0] * len(rest), given))
            target = times(w, p[node])
            law = without(positive_part(target, draft), given)
            taken = [
                min(a, b) if y not in given else 0.0
                for y, (a, b) in enumerate(zip(target, draft, strict=True))
            ]
            visited = 1.0 - sum(taken)
            emitted = visit(last + 1, min(1.0, target[tokens[last]] / draft[tokens[last]]))
            if emitted:
                return [tokens[last], *emitted]
            for j in first:
                emitted = visit(j + 1, share(target[tokens[j]], visited))
                if emitted:
                    return [tokens[j], *emitted]
                visited -= target[tokens[j]]
            own = share(sum(law), sum(law) + 1 - w)
        if node == 0 or u[node - 1] < own:
            return [draw(law if any(law) else p[node], u[-1])]
        return None

    return visit(0, 1.0)


# --- one path of a tree -----------------------------------------------------------------------------------


def by_ratio(p, q):
    """The drafted tokens from the lowest p/q up, the lower one first among ties."""
    return sorted((y for y, b in enumerate(q) if b), key=lambda y: (p[y] / q[y], y))


def greatest_of(drafts, p, q):
    """{token: [chance(m) that it is the greatest of `drafts` samples of q, m of them, for m = 1 …]}."""
    found, below = {}, 0.0
    for y in by_ratio(p, q):
        found[y] = [comb(drafts, m) * q[y] ** m * below ** (drafts - m) for m in range(1, drafts + 1)]
        below += q[y]
    return found


def along_the_greatest_path(of_choice):
    """Block verification of the greatest path; of_choice(r, q) is the law that it takes the tokens to come from.

    Where the path leads is followed as sets of nodes: `alive` has the probability of every set of nodes that
    may carry its tokens, the drafted ones among them."""

    def step(parents, tokens, p, q, u):
        below = {frozenset([0]): 1.0}
        here, chosen, nodes, laws = {0}, [], [0], []
        while drafted := [j for j, parent in enumerate(parents) if parent in here]:
            node = parents[drafted[0]]
            law, after = [0.0] * len(p[node]), {}
            order = by_ratio(p[node], q[node])
            x = max((tokens[j] for j in drafted), key=order.index)
            for alive, chance in below.items():
                children = [j + 1 for j, parent in enumerate(parents) if parent in alive]
                greatest = greatest_of(len(children), p[node], q[node])
                for y, chances in greatest.items():
                    law[y] += chance * sum(chances)
                for m, each in enumerate(greatest[x], 1):
                    for same in combinations(children, m):
                        kept = frozenset(same)
                        after[kept] = after.get(kept, 0.0) + chance * each / comb(len(children), m)
            laws.append(of_choice(normalised(law), q[node]))
            below, here = after, {j + 1 for j in drafted if tokens[j] == x}
            chosen.append(x)
            nodes.append(min(here))
        rows = [p[node] for node in nodes]
        return block(None, chosen, rows, laws, [*u[: len(chosen)], u[-1]])

    return step


# --- lossy: the argmax, or what is near it ---------------------------------------------------------------


def near_the_argmax(passes):
    """Accept x iff passes(p, x), else emit the argmax; the bonus is the argmax too."""

    def step(parents, tokens, p, q, u, **values):
        n = next((i for i, x in enumerate(tokens) if not passes(p[i], x, i, **values)), len(tokens))
        return [*tokens[:n], ranked(p[n])[0]]

    return step


def near_by_rank_or_value(p, x, i, top_k, distance, min_block):
    order = ranked(p)
    return i < min_block or order.index(x) < top_k or abs(x - order[0]) <= distance


def typical(p, x, i, epsilon, delta):
    entropy = -sum(weight * log(weight + 1e-5) for weight in p)
    return p[x] > min(epsilon, delta * exp(-entropy))


def mars(p, x, i, theta, log_partition):
    best, second = ranked(p)[:2]
    if x != second or p[x] == 0:
        return x == best
    z1, z2 = log(p[best]) + log_partition, log(p[second]) + log_partition
    return z1 > 0 and z2 / z1 > theta


def fly(parents, tokens, p, q, u, threshold, window):
    agrees = [x == ranked(row)[0] for x, row in zip(tokens, p, strict=False)]

    def kept(i):
        entropy = -sum(weight * log(weight) for weight in p[i] if weight)
        following = agrees[i + 1 : i + 1 + int(window)]
        drafted = len(following) == int(window)
        return agrees[i] or (drafted and all(following) and entropy / log(len(p[i])) >= threshold)

    n = next((i for i in range(len(tokens)) if not kept(i)), len(tokens))
    return [*tokens[:n], ranked(p[n])[0]]


def typical_tree(parents, tokens, p, q, u, epsilon, delta):
    """All paths from the root, and of the longest ones whose tokens all pass the test of a chain the likeliest."""

    def path(node):
        return [] if node == 0 else [*path(parents[node - 1]), node]

    passing = []
    for node in range(len(parents) + 1):
        nodes = path(node)
        before = [0, *nodes]
        if all(typical(p[b], tokens[n - 1], 0, epsilon, delta) for b, n in zip(before, nodes, strict=False)):
            passing.append(nodes)
    longest = max(
        passing, key=lambda nodes: (len(nodes), prod(p[parents[n - 1]][tokens[n - 1]] for n in nodes))
    )
    node = longest[-1] if longest else 0
    return [*(tokens[n - 1] for n in longest), ranked(p[node])[0]]


# --- lossy: the standard rule against another law --------------------------------------------------------


def against(pi, bonus=lambda p, q, **values: p):
    """The standard rule with pi(p, q) in place of p."""
    return along_a_chain(
        lambda p, q, x, **values: pi(p, q, **values)[x] / q[x],
        lambda p, q, x, **values: residual(pi(p, q, **values), q),
        bonus,
    )


def following(pi):
    """Every token follows pi(p, q), the bonus too."""
    return against(pi, pi)


def mixture(p, q, weight):
    return [weight * a + (1 - weight) * b for a, b in zip(p, q, strict=True)]


def optimal(p, q, alpha):
    return p if max(p) - max(q) > alpha * sum(positive_part(p, q)) else q


def by_token(p, q, alpha):
    trusted = [v for v, weight in enumerate(p) if weight >= (1 - alpha) * max(p)]
    eta = sum(without(q, trusted))
    return [b + eta * a for a, b in zip(p, only(q, trusted), strict=True)]


def fuzzy(p, q, threshold):
    middle = mixture(p, q, 0.5)
    return q if divergence(p, middle) / 2 + divergence(q, middle) / 2 < threshold else p


# --- lossy: the standard rule with a laxer test ----------------------------------------------------------


def lenient(p, q, x, lenience):
    return p[x] / (lenience * q[x])


def judged(p, q, x, overrule):
    a = min(1.0, p[x] / q[x])
    return a + (1 - a) * overrule


def raised(p, x, delta):
    """h, the target with the probability of x raised."""
    top = min(p[x] + sqrt(2 * delta * p[x] * (1 - p[x])), 1.0)
    return [top if y == x else a * (1 - top) / (1 - p[x]) for y, a in enumerate(p)] if p[x] < 1 else p


def one_over_beta(p, q, alpha):
    """1/β, for the largest k whose token is covered by the residual that it makes; 0 if nothing is
    rejected."""
    rejected = sum(positive_part(q, times(1 / alpha, p)))
    order = sorted((y for y, a in enumerate(p) if a), key=lambda y: q[y] / p[y])
    ends = range(1, len(order) + 1)
    tried = [(rejected + sum(q[y] for y in order[:k])) / sum(p[y] for y in order[:k]) for k in ends]
    covered = [t for t, y in zip(tried, order, strict=True) if p[y] * t > q[y]]
    return covered[-1] if covered else 0.0


def mentor(p, q, alpha):
    """π, for given α."""
    low = one_over_beta(p, q, alpha)
    return [a / alpha if a < alpha * b else max(low * a, b) for a, b in zip(p, q, strict=True)]


@lru_cache(maxsize=64)  # acceptance and residual of a token have the same rows
def least_alpha(p, q, limit):
    """The least α for which KL(p‖π) is within the limit, by bisection; 0 where q itself is."""
    if limit == 0:
        return 1.0
    if divergence(p, q) <= limit:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(50):
        alpha = (low + high) / 2
        low, high = (low, alpha) if divergence(p, mentor(p, q, alpha)) <= limit else (alpha, high)
    return high


def mentored_chance(p, q, x, divergence):
    alpha = least_alpha(tuple(p), tuple(q), divergence)
    return p[x] / (alpha * q[x]) if alpha else 1.0


def mentored_residual(p, q, x, divergence):
    return residual(times(one_over_beta(p, q, least_alpha(tuple(p), tuple(q), divergence)), p), q)


def two_thresholds(p, q, children, u, threshold_single, threshold_acc):
    for x, summed in zip(children, accumulate(p[x] for x in children), strict=True):
        if p[x] > 0 and (u[0] < summed / threshold_acc or p[x] >= threshold_single):
            return x, None
    return None, without(p, children)


# --- wrong on purpose ------------------------------------------------------------------------------------


def block_first_failure(parents, tokens, p, q, u):
    failed = [not coin < h for coin, h in zip(u, chances(tokens, p, q), strict=False)]
    n = [*failed, True].index(True)
    return cut(tokens, p, q, u, n, scales(tokens, p, q)[n])


def block_tokenwise_residual(parents, tokens, p, q, u):
    return cut(tokens, p, q, u, longest(tokens, p, q, u), 1.0)


def pruned_children(p, q, children, u, threshold):
    kept = [(x, coin) for x, coin in zip(children, u, strict=True) if q[x] >= threshold]
    return recursive_rejection(p, q, [x for x, _ in kept], [coin for _, coin in kept])


def sorted_siblings(p, q, children, u):
    return recursive_rejection(p, q, sorted(children, key=lambda x: -q[x]), u)


def one_coin_real_q(p, q, children, u):
    for x, summed in zip(children, accumulate(p[x] for x in children), strict=True):
        if u[0] < summed:
            return x, None
    return None, without(positive_part(p, q), children)


# --- registry --------------------------------------------------------------------------------------------

NAIVE = {
    "standard": along_a_chain(lambda p, q, x: p[x] / q[x], of_residual),
    "one_hot": along_a_chain(lambda p, q, x: p[x], lambda p, q, x: without(p, [x])),
    "non_iterative": along_a_chain(lambda p, q, x: p[x] / (largest_ratio(p, q) * q[x]), lambda p, q, x: p),
    "sampler_match": sampler_match,
    "von_neumann": von_neumann,
    "gumbel": gumbel,
    "confidence_scheduled": cut_unless(lambda q, x, threshold: max(q) >= threshold),
    "token_level_intersection": cut_unless(in_intersection, lambda q, s: normalised(intersection(q, s))),
    "block": block,
    "hierarchical": stepping_back(lambda joint: [j / max(joint[: i + 1]) for i, j in enumerate(joint)]),
    "recursive_rejection": down_a_tree(recursive_rejection),
    "without_replacement": down_a_tree(without_replacement),
    "deterministic_children": down_a_tree(deterministic_children),
    "naive_matching": down_a_tree(naive_matching),
    "token_tree": down_a_tree(token_tree),
    "gumbel_list": down_a_tree(gumbel_list, width=lambda size: size),
    "greedy_multi_draft": down_a_tree(greedy_multi_draft),
    "k_seq": down_a_tree(k_seq_with(least_rho)),
    "traversal": up_a_tree(replaced=True),
    "traversal_without_replacement": up_a_tree(replaced=False),
    "univer": unified,
    "greedy_multi_path_block": along_the_greatest_path(lambda r, q: r),
    "greedy_match": near_the_argmax(lambda p, x, i: x == ranked(p)[0]),
    "greedy_lenience": near_the_argmax(lambda p, x, i, lenience: p[x] >= lenience * max(p)),
    "blockwise": near_the_argmax(near_by_rank_or_value),
    "typical": near_the_argmax(typical),
    "typical_tree": typical_tree,
    "mars": near_the_argmax(mars),
    "fly": fly,
    "ensemble": against(mixture),
    "cascade_chow": following(lambda p, q, alpha: p if max(q) < 1 - alpha else q),
    "cascade_diff": following(lambda p, q, alpha: p if max(q) < max(p) - alpha else q),
    "cascade_opt": following(optimal),
    "cascade_token": following(by_token),
    "fuzzy": following(fuzzy),
    "lenience": along_a_chain(lenient, of_residual),
    "scaled_lenience": along_a_chain(lenient, lambda p, q, x, lenience: residual(p, times(lenience, q))),
    "judge": along_a_chain(judged, of_residual),
    "ears": along_a_chain(lambda p, q, x, tolerance: p[x] / q[x] + tolerance * (1 - max(p)), of_residual),
    "cactus": along_a_chain(
        lambda p, q, x, delta: raised(p, x, delta)[x] / q[x],
        lambda p, q, x, delta: residual(raised(p, x, delta), q),
    ),
    "mentored": along_a_chain(mentored_chance, mentored_residual),
    "two_thresholds": down_a_tree(two_thresholds),
    "block_first_failure": block_first_failure,
    "block_tokenwise_residual": block_tokenwise_residual,
    "intersection_unnormalised": cut_unless(in_intersection, intersection),
    "hierarchical_uncapped": stepping_back(lambda joint: joint),
    "k_seq_small_rho": down_a_tree(k_seq_with(lambda p, q, drafts: 1.0)),
    "k_seq_wrong_k": down_a_tree(k_seq_with(least_rho, count=lambda children: len(set(children)))),
    "one_coin_real_q": down_a_tree(one_coin_real_q),
    "pointwise_envelope": along_a_chain(
        lambda p, q, x: p[x] / q[x], lambda p, q, x: [min(a, b) for a, b in zip(p, q, strict=True)]
    ),
    "pruned_children": down_a_tree(pruned_children),
    "greedy_path_as_drafted": along_the_greatest_path(lambda r, q: q),
    "sorted_siblings": down_a_tree(sorted_siblings),
    "traversal_wrong_update": up_a_tree(
        True, update=lambda s, w, draft: min(s / (1 - draft), 1.0) if draft < 1 else 0.0
    ),
}
