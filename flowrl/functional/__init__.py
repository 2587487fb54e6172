"""The mathematics of RL for language models: pure functions of torch tensors.

A tensor over tokens comes in one of two forms, told apart by the keyword `lengths`:

* padded, `f32[..., token]`, every row of one width: `lengths` is left out;
* packed, the rows one after another in one dimension: `lengths: i64[row]` counts each row's tokens.

`mask` has the tokens' form and is True on trained tokens. Where it is False a position is inert:
whatever it holds changes nothing, and outputs there are 0. Group functions take
`f32[..., sample]`, the last dimension being the group, or `f32[N]` and `groups: i64[N]`, opaque
ids.
"""
