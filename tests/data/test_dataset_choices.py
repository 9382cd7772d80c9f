"""The table of data sets: what a new one has to have."""

import typing

import pytest
from kdist.data.dataset_choices import DATASETS, DatasetName, check_data_dir
from kdist.errors import UserError
from kdist.training.config import TrainConfig


def test_every_entry_is_a_choice():
    assert typing.get_args(DatasetName) == tuple(DATASETS)


@pytest.mark.parametrize("name", [name for name, one in DATASETS.items() if one.is_embedded])
def test_an_embedded_set_has_its_images_and_no_folder(name):
    lines = []
    data = DATASETS[name].load(None, lines.append)
    assert len(data.train_images) == DATASETS[name].training_images
    assert len(lines) == 1
    check_data_dir(name, None)
    with pytest.raises(UserError, match=f"received data_dir=here with dataset={name}"):
        TrainConfig(dataset=name, data_dir="here")


@pytest.mark.parametrize("name", [name for name, one in DATASETS.items() if not one.is_embedded])
def test_another_set_is_read_from_a_folder_or_found(name):
    check_data_dir(name, "here")
    with pytest.raises(UserError, match="data_dir 'here' .*, expected the . files of"):
        DATASETS[name].load("here", print)
