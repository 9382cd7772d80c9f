import math

from kdist.tracking.best_values import BestValues


def test_accuracies_are_highest_losses_lowest_and_nothing_else_is_compared():
    best = BestValues()
    best.update(1, {"loss": 2.0, "top_5_accuracy": 0.5, "learning_rate": 1.0, "lossless": 1.0})
    found = best.update(2, {"loss": 1.0, "top_5_accuracy": 0.25})
    assert found == {"best_loss": 1.0, "best_top_5_accuracy": 0.5, "best_epoch": 2}


def test_the_best_epoch_is_the_first_of_the_best_validation_accuracy():
    best = BestValues()
    for epoch, accuracy in enumerate([math.nan, 0.5, 0.75, 0.75, 0.5, math.nan], start=1):
        found = best.update(epoch, {"loss": 1 / epoch, "val_accuracy": accuracy})
    assert found == {"best_loss": 1 / 6, "best_val_accuracy": 0.75, "best_epoch": 3}


def test_nothing_to_compare_has_no_best_epoch():
    assert BestValues().update(1, {"mae": 1.0, "val_accuracy": math.nan}) == {}
