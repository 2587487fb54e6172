"""What differs between two graphs."""

import pytest
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.config.programs import builtin_programs, load_program
from flowrl.ir.diff import diff


def graph(program, **hyperparameters):
    program = load_program(program) if isinstance(program, str) else program
    return fl.trace(program, **hyperparameters).graph


def test_ppo_against_grpo():
    assert diff(graph("ppo"), graph("grpo")) == snapshot("""\
ppo -> grpo
~ hyperparameters: - epochs=2; - minibatch=64; kl_coef: 0.05 -> 0.001; + samples=8
- input critic: model<critic>
~ generate: n: 1 -> 8  # ppo.py:9 -> grpo.py:14
- values(critic, prompts.context, generate.tokens): f32[prompt, sample, token]  # ppo.py:10
+ group_advantage(score.rewards) {norm_by_std=True, ddof=1, eps=1e-06, nonfinite=raise}: f32[prompt, sample]  # grpo.py:16
- sub(generate.logprobs, logprobs): f32[prompt, sample, token]  # ppo.py:11
- mul(0.05, sub): f32[prompt, sample, token]  # ppo.py:11
- token_rewards(score.rewards, generate.mask, mul): f32[prompt, sample, token]  # ppo.py:11
- gae(token_rewards, values, generate.mask) {gamma=1, lam=1}  # ppo.py:12
- whiten(gae.advantages, generate.mask) {mode=standard, ddof=1, eps=1e-08}: f32[prompt, sample, token]  # ppo.py:13
- minibatches(generate.tokens) {sequences=64, epochs=2, by=group}: minibatches  # ppo.py:22
- scan(minibatches, policy, critic, ...)  # ppo.py:22
~ update policy: in scan.body -> in the program; + results kl  # ppo.py:16 -> grpo.py:23
~ update policy / clipped_surrogate: argument 3: whiten -> group_advantage  # ppo.py:17 -> grpo.py:20
+ update policy / kl(new.logprobs, logprobs) {estimator=k3, gradient=direct}: f32[prompt, sample, token]  # grpo.py:21
+ update policy / mul(0.001, kl): f32[prompt, sample, token]  # grpo.py:21
+ update policy / add(clipped_surrogate, mul): f32[prompt, sample, token]  # grpo.py:21
~ update policy / token_mean: argument 1: clipped_surrogate -> add  # ppo.py:16 -> grpo.py:21
~ update policy / clip_fractions: argument 3: whiten -> group_advantage  # ppo.py:16 -> grpo.py:23
+ update policy / token_mean(kl, generate.mask): f32[]  # grpo.py:23
- scan / update critic(critic, prompts.context, generate.tokens) {reads=[values]}  # ppo.py:18
- scan / update critic / clipped_value(new.values, values, gae.returns) {clip=0.2}: f32[prompt, sample, token]  # ppo.py:19
- scan / update critic / token_mean(clipped_value, generate.mask): f32[]  # ppo.py:18
- scan / update critic / explained_variance(new.values, gae.returns, generate.mask): f32[]  # ppo.py:18
- scan / update critic / value_clip_fraction(new.values, values, gae.returns, generate.mask) {clip=0.2}: f32[]  # ppo.py:18
- returns critic
- metric critic/loss
- metric critic/grad_norm
- metric critic/learning_rate
- metric critic/value_clip_fraction
- metric critic/explained_variance
+ metric policy/kl\
""")


def test_another_clip_is_one_hyperparameter_and_the_ops_that_read_it():
    assert diff(graph("grpo"), graph("grpo", clip=0.3)) == snapshot("""\
grpo -> grpo
~ hyperparameters: clip: 0.2 -> 0.3
~ update policy / clipped_surrogate: clip: 0.2 -> 0.3  # grpo.py:20
~ update policy / clip_fractions: clip: 0.2 -> 0.3  # grpo.py:23\
""")


def test_another_coefficient_is_another_number_as_argument():
    assert diff(graph("grpo"), graph("grpo", kl_coef=0.5)) == snapshot("""\
grpo -> grpo
~ hyperparameters: kl_coef: 0.001 -> 0.5
~ update policy / mul: argument 1: 0.001 -> 0.5  # grpo.py:21\
""")


def test_a_program_has_another_data_input():
    assert diff(graph("sft"), graph("dpo")) == snapshot("""\
sft -> dpo
~ hyperparameters: + beta=0.1
- input examples.context: i32[example, context]
- input examples.rows: row[example]
- input examples.tokens: i32[example, token]
- input examples.mask: bool[example, token]
+ input reference: model<reference>
+ input pairs.context: i32[prompt, context]
+ input pairs.rows: row[prompt]
+ input pairs.tokens: i32[prompt, sample, token]
+ input pairs.mask: bool[prompt, sample, token]
+ logprobs(reference, pairs.context, pairs.tokens): f32[prompt, sample, token]  # dpo.py:12
~ update policy: argument 2: examples.context -> pairs.context; argument 3: examples.tokens -> pairs.tokens; + results accuracy  # sft.py:10 -> dpo.py:19
- update policy / neg(new.logprobs): f32[example, token]  # sft.py:10
- update policy / token_mean(neg, examples.mask): f32[]  # sft.py:10
+ update policy / sub(new.logprobs, logprobs): f32[prompt, sample, token]  # dpo.py:15
+ update policy / sum(sub, pairs.mask) {over=token}: f32[prompt, sample]  # dpo.py:15
+ update policy / dpo_loss(sum) {beta=0.1}: f32[prompt]  # dpo.py:16
+ update policy / mean(dpo_loss): f32[]  # dpo.py:17
+ update policy / less(dpo_loss, 0.693147): bool[prompt]  # dpo.py:17
+ update policy / float(less): f32[prompt]  # dpo.py:17
+ update policy / mean(float): f32[]  # dpo.py:17
+ metric policy/accuracy\
""")


@pytest.mark.parametrize("name", builtin_programs())
def test_a_program_does_not_differ_from_itself(name):
    assert diff(graph(name), graph(name)) == f"{name} -> {name}: no difference"


@pytest.mark.parametrize("a", builtin_programs())
@pytest.mark.parametrize("b", builtin_programs())
def test_backwards_it_has_as_many_lines_with_the_marks_exchanged(a, b):
    there, back = diff(graph(a), graph(b)), diff(graph(b), graph(a))

    marks = [[line[0] for line in text.splitlines()[1:]] for text in (there, back)]

    assert [marks[0].count(mark) for mark in "+-~"] == [marks[1].count(mark) for mark in "-+~"]


def test_the_order_of_independent_ops_does_not_matter():
    @fl.program
    def one(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
        rollouts = ops.generate(policy, prompts)
        a, b = ops.logprobs(policy, rollouts), ops.logprobs(reference, rollouts)
        return {"gap": ops.token_mean(ops.kl(a, b), rollouts.mask)}

    @fl.program
    def other(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
        rollouts = ops.generate(policy, prompts)
        b, a = ops.logprobs(reference, rollouts), ops.logprobs(policy, rollouts)
        return {"gap": ops.token_mean(ops.kl(a, b), rollouts.mask)}

    assert diff(graph(one), graph(other)) == "one -> other: no difference"


def test_two_branches_of_a_cond_are_told_apart():
    def program(low):
        @fl.program
        def chosen(policy: fl.Model, prompts: fl.Prompts):
            _, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))
            mean = rewards.mean()
            kept = ops.cond(mean > 0.5, lambda x: x.exp(), low, rewards)
            return {"kept": kept.mean()}

        return chosen

    before, after = program(lambda x: x.exp()), program(lambda x: x.abs())

    assert diff(graph(before), graph(after)) == snapshot("""\
chosen -> chosen
- cond.orelse / exp(score.rewards): f32[prompt, sample]  # test_diff.py:142
+ cond.orelse / abs(score.rewards): f32[prompt, sample]  # test_diff.py:142\
""")


def test_what_moves_into_a_loop_is_one_change():
    @fl.program
    def once(policy: fl.Model, examples: fl.Examples):
        policy, stats = ops.update(policy, loss_on(examples), examples)
        return policy, stats

    @fl.program
    def often(policy: fl.Model, examples: fl.Examples):
        def body(model, mb):
            return ops.update(model, loss_on(mb), mb)

        parts = ops.minibatches(examples, sequences=4)
        policy, stats = ops.scan(body, policy, parts)
        return policy, stats

    assert diff(graph(once), graph(often)) == snapshot("""\
once -> often
+ minibatches(examples.tokens) {sequences=4, epochs=1, by=group}: minibatches  # test_diff.py:162
+ scan policy(minibatches, policy, examples.context, ...)  # test_diff.py:163
~ scan policy / update policy: in the program -> in scan.body  # test_diff.py:154 -> test_diff.py:160\
""")


def loss_on(rows):
    return lambda new: ops.token_mean(-new.logprobs, rows.mask)
