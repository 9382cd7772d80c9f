import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdist.errors import UserError
from kdist.tracking.names import TRACKERS, check_options, first_and_last_step, tracker_names
from kdist.training.config import TrainConfig
from kdist.training.fields import fields_of

REAL = st.sets(st.sampled_from([name for name in TRACKERS if name != "none"]))


@given(REAL, st.randoms())
def test_names_in_any_order_and_often_are_each_one_tracker(asked, random):
    parts = [*asked, *asked]
    random.shuffle(parts)
    cut = random.randint(0, len(parts))
    names = tracker_names([" , ".join(parts[:cut]), *parts[cut:]])
    assert set(names) == asked
    assert list(names) == sorted(names, key=TRACKERS.index)


@pytest.mark.parametrize("nothing", [None, "", "none", [], ["none", "none"]])
def test_none_is_no_tracker(nothing):
    assert tracker_names(nothing) == ()


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("wandb,nosuch", "unknown tracker nosuch: known are wandb, tensorboard, csv, none"),
        (["none", "csv"], "none together with csv"),
        ([1], "track takes names"),
    ],
)
def test_other_names_are_refused(names, words):
    with pytest.raises(UserError, match=words):
        tracker_names(names)


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_steps_are_read_from_text_and_numbers(first, more):
    last = first + more
    assert first_and_last_step(f"{first},{last}") == (first, last)
    assert first_and_last_step((first, last)) == (first, last)
    assert first_and_last_step(f"{first}") == (first, first)
    assert first_and_last_step(None) is None


@pytest.mark.parametrize("steps", ["", "a", "1,2,3", (1.5, 2), [], "20,10", (0, 3), "-1", True])
def test_other_steps_are_refused(steps):
    with pytest.raises(UserError, match="profile_batches"):
        first_and_last_step(steps)


def test_the_help_names_every_tracker():
    (setting,) = (field for field in fields_of(TrainConfig) if field.name == "track")
    assert all(f"`{name}`" in setting.help for name in TRACKERS)


def test_an_option_needs_its_tracker():
    check_options((), every_batches=None, log_model=False, profile_batches=None)
    check_options(("tensorboard",), every_batches=3, profile_batches="1,2")
    with pytest.raises(UserError, match="log_model=True does nothing without wandb"):
        check_options(("tensorboard",), log_model=True)
    with pytest.raises(UserError, match="track_batches=3 does nothing without wandb or tensorb"):
        check_options(("csv",), track_batches=3)
