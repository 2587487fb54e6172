import pytest

from flowrl.errors import EngineError
from flowrl.runtime.engine import Sampling
from flowrl.runtime.sampling.refusals import check_sampling


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (Sampling(temperature=-1.0), "`temperature` must be at least 0; got -1.0"),
        (Sampling(top_p=0.0), "`top_p` must be above 0 and at most 1; got 0.0"),
        (Sampling(top_k=-1), "`top_k` must be at least 0; got -1"),
        (Sampling(max_tokens=0), "`max_tokens` must be at least 1; got 0"),
        (
            Sampling(max_tokens=4, min_tokens=5),
            "`min_tokens` must be between 0 and max_tokens (4); got 5",
        ),
        (Sampling(stop=("a", "")), "`stop` must be strings that are not empty; got ('a', '')"),
        (
            Sampling(stop_tokens=(2, 9)),
            "`stop_tokens` must be tokens that the model knows, 0 to 8; got (2, 9)",
        ),
    ],
)
def test_a_setting_that_describes_no_distribution_is_named(sampling, message):
    with pytest.raises(EngineError) as error:
        check_sampling(sampling, vocabulary=9)

    assert str(error.value) == message
