"""Private names of Keras, TensorFlow and KerasTuner, and the patches of Keras and TensorFlow.

`spmd/` uses further private names: those of TensorFlow's graphs and collectives.

Importing this package changes nothing. `all_patches.install` replaces functions when the first
strategy is created.
"""

import logging

import keras
import tensorflow as tf

from ..versions import describe_untested

if line := describe_untested({"Keras": keras.__version__, "TensorFlow": tf.__version__}):
    logging.getLogger("kdist").warning(line)
