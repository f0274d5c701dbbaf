"""Every exception and warning that the package raises, drawn as one tree.

```
AmpError (Exception)
├── PrecisionError (ValueError)      an unknown or refused precision or level
├── EnvironmentUnfit (RuntimeError)  another backend, another floatx, Keras 2
├── ModelError (TypeError)           not a Keras model, or not one yet
├── LayerError (ValueError)          a layer that cannot be kept in float32
├── PinError (ValueError)            pins that match nothing, or cannot be set
├── PlanError (ValueError)           a file that holds no precision plan
├── ReportError (ValueError)         a file that holds no comparison of precisions
├── InputsError (ValueError)         example inputs are missing or do not fit
├── TracingError (RuntimeError)      a model that cannot be observed at all
├── ConversionError (ValueError)     a model that cannot be made in another precision
├── LoadError (ValueError)           a model file or a builder that gives none
├── OptimizerError (ValueError)      an optimizer or a setting that cannot scale
├── TrainingStuckError (FloatingPointError)
│                                    too many steps in a row were skipped
├── ProcessDiedError (RuntimeError)  a process of its own that ended without an answer
├── MissingExtraError (ImportError)  an optional dependency is not installed
├── SelectionError (ValueError)      names that a record does not hold
├── SettingsError (ValueError)       a project's settings that cannot be read or meant
└── FindingsError (AssertionError)   an audit found what it was told to refuse

AmpWarning (UserWarning)
├── SlowPrecisionWarning             this machine runs the precision slowly
├── ConflictWarning                  layers that half precision makes fail, pinned
├── ConversionWarning                a conversion that cannot reach everything
├── PureHalfWarning                  level O3 gives up float32 master weights
├── PinWarning                       pins that files or `fit` have trouble with
├── SettingsWarning                  settings of a project that are not read
└── LossScaleWarning                 scaling that is misused, or does not help
```
"""

from __future__ import annotations

__all__ = [
    "AmpError",
    "AmpWarning",
    "ConflictWarning",
    "ConversionError",
    "ConversionWarning",
    "EnvironmentUnfit",
    "FindingsError",
    "InputsError",
    "LayerError",
    "LoadError",
    "LossScaleWarning",
    "MissingExtraError",
    "ModelError",
    "OptimizerError",
    "PinError",
    "PinWarning",
    "PlanError",
    "PrecisionError",
    "ProcessDiedError",
    "PureHalfWarning",
    "ReportError",
    "SelectionError",
    "SettingsError",
    "SettingsWarning",
    "SlowPrecisionWarning",
    "TracingError",
    "TrainingStuckError",
]


class AmpError(Exception):
    """Base of every error raised by this package.

    Example:

    >>> issubclass(PrecisionError, AmpError)
    True
    """


class PrecisionError(AmpError, ValueError):
    """A precision or level that is unknown, or refused in this combination."""


class EnvironmentUnfit(AmpError, RuntimeError):  # noqa: N818 - `EnvironmentError` is taken
    """Keras is set up in a way that mixed precision cannot work with."""


class ModelError(AmpError, TypeError):
    """The object is not a Keras 3 model, or is not built yet."""


class LayerError(AmpError, ValueError):
    """A layer that cannot be wrapped, or cannot compute in float32 as asked."""


class PinError(AmpError, ValueError):
    """A pin that matches no layer, or that the model cannot run with."""


class PlanError(AmpError, ValueError):
    """A file that holds no precision plan, or one of another version.

    Example:

    >>> issubclass(PlanError, ValueError)
    True
    """


class ReportError(AmpError, ValueError):
    """A file that holds no comparison of precisions, or one of another version.

    Example:

    >>> issubclass(ReportError, ValueError)
    True
    """


class InputsError(AmpError, ValueError):
    """Example inputs are missing, or do not fit the model."""


class TracingError(AmpError, RuntimeError):
    """The model can neither be traced nor run on a tiny batch."""


class ConversionError(AmpError, ValueError):
    """A model that cannot be made anew in another precision."""


class LoadError(AmpError, ValueError):
    """A model file cannot be opened, or a builder does not give a model."""


class OptimizerError(AmpError, ValueError):
    """An optimizer that cannot be scaled, or a setting that cannot work."""


class TrainingStuckError(AmpError, FloatingPointError):
    """So many steps in a row were skipped that the run does not train.

    Inside a `tf.function`, in `fit` say, TensorFlow raises its
    `InvalidArgumentError` with the same text.
    """


class ProcessDiedError(AmpError, RuntimeError):
    """The process that a run had for itself ended before it answered."""


class MissingExtraError(AmpError, ImportError):
    """An optional dependency is missing; the message has the command that installs it."""


class SelectionError(AmpError, ValueError):
    """Paths or kinds that a record does not hold were asked of it."""


class SettingsError(AmpError, ValueError):
    """Settings of a project that cannot be read, or that name what does not exist."""


class FindingsError(AmpError, AssertionError):
    """An audit has findings of a severity that the caller refuses."""


class AmpWarning(UserWarning):
    """Base of every warning raised by this package."""


class SlowPrecisionWarning(AmpWarning):
    """The precision runs slower than float32 on this machine."""


class ConflictWarning(AmpWarning):
    """Layers that half precision makes fail, and that were pinned in float32 for it."""


class ConversionWarning(AmpWarning):
    """A part of a model that its conversion to another precision cannot reach."""


class PureHalfWarning(AmpWarning):
    """Level O3 keeps the variables in half precision, without float32 masters."""


class PinWarning(AmpWarning):
    """Pins that a file keeps only with this package, or that do not help enough."""


class SettingsWarning(AmpWarning):
    """Settings of a project that stand beside others, and are not read."""


class LossScaleWarning(AmpWarning):
    """Loss scaling is used in a way that loses gradients, or cannot help."""
