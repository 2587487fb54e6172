"""One step of the program by hand, without a run file."""

from rival import rival

import flowrl as fl

with fl.session(rewards={"reward": "letters.py:share"}, sampling={"max_tokens": 6}) as session:
    policy, other = session.model("policy", "model"), session.model("rival", "model")
    prompts = session.prompts(["a:", "b:"], letter=["a", "b"])

    policy, stats = rival(policy, other, prompts, sharpness=2.0)

print(stats["apart"], stats["policy/loss"])
