"""benchmarks/ray_cost.py takes the same steps in one process and on Ray."""

from benchmarks.ray_cost import medians, steps


def test_a_chain_of_cheap_nodes_is_timed_here_and_on_ray(pools):
    compared = steps(10, pools(main=1))

    assert medians(compared, repeats=1).keys() == {"local", "ray"}
