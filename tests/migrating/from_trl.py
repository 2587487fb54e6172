"""A reward of TRL that reads chat messages, called for flowrl with text."""

from trl_rewards import accuracy_reward  # a reward function of TRL, as it stands


def accuracy(completions, **columns):
    """Return a score for each completion."""
    chats = [[{"role": "assistant", "content": text}] for text in completions]
    return accuracy_reward(completions=chats, **columns)
