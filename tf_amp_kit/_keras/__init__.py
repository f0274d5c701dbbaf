"""The only door to private names of Keras and TensorFlow.

Each function says which private name it uses, and why no public one will do.
Where a new Keras moves a name, this is the only folder to change.
"""

from __future__ import annotations

from tf_amp_kit._keras.autocast import (
    autocast_dtype,
    autocast_scope,
    is_autocast,
    stored_dtype,
)
from tf_amp_kit._keras.building import build_as_called, unbuilt_again
from tf_amp_kit._keras.captures import (
    WrittenVariable,
    captured_by_outside,
    captured_from,
    handles_of,
    written_variables,
)
from tf_amp_kit._keras.code import kind_of_keras_code
from tf_amp_kit._keras.gradients import no_tape, original_operation, originals_remembered
from tf_amp_kit._keras.graphs import (
    eager_operations_seen,
    function_graph,
    functions_inlined,
    graph_function,
    graph_optimizer_off,
    is_compiled_by_xla,
    may_be_written,
    op_callbacks_off,
    trace_to_graph,
    traced_function_graph,
)
from tf_amp_kit._keras.kernels import onednn_accepts, onednn_is_enabled, registered_kernels
from tf_amp_kit._keras.layers import (
    fresh_loss,
    fresh_metrics,
    half_layers_compute_in,
    inputs_structure,
    is_bookkeeping,
    is_functional,
    is_only_inferring_shapes,
    is_stateless,
    losses_restored,
    metric_directions,
    state_restored_on_failure,
    tracked_layers,
    writes_its_layers,
)
from tf_amp_kit._keras.normalization import cast_statistics
from tf_amp_kit._keras.optimizers import (
    own_non_trainable_variables,
    replicas_need_no_merge_call,
    trainable_variables_of,
)
from tf_amp_kit._keras.patching import ClassPatch, context_value
from tf_amp_kit._keras.policies import (
    default_policy_chosen,
    names_of_another_process,
    refresh_symbolic_dtypes,
    replace_policy,
    unsafe_deserialization,
)
from tf_amp_kit._keras.randomness import random_state_restored, seeded
from tf_amp_kit._keras.saving import (
    can_repeat_compile,
    compile_arguments,
    copy_call_marks,
    copy_trainable,
    deserialized,
    has_own_compile,
    lambda_config,
    own_variables,
    serialized,
    spared_from_decay,
)
from tf_amp_kit._keras.sharing import sharing_revived
from tf_amp_kit._keras.tracebacks import autograph_error, full_tracebacks, stack_frames
from tf_amp_kit._keras.training import train_function_patch, training_accompanied
from tf_amp_kit._keras.watching import handed_on
from tf_amp_kit._keras.wrapping import (
    cast_with_mask,
    copy_mask,
    dropout_cell_class,
    mask_of,
    set_input_dtypes,
    set_mask,
)

__all__ = [
    "ClassPatch",
    "WrittenVariable",
    "autocast_dtype",
    "autocast_scope",
    "autograph_error",
    "build_as_called",
    "can_repeat_compile",
    "captured_by_outside",
    "captured_from",
    "cast_statistics",
    "cast_with_mask",
    "compile_arguments",
    "context_value",
    "copy_call_marks",
    "copy_mask",
    "copy_trainable",
    "default_policy_chosen",
    "deserialized",
    "dropout_cell_class",
    "eager_operations_seen",
    "fresh_loss",
    "fresh_metrics",
    "full_tracebacks",
    "function_graph",
    "functions_inlined",
    "graph_function",
    "graph_optimizer_off",
    "half_layers_compute_in",
    "handed_on",
    "handles_of",
    "has_own_compile",
    "inputs_structure",
    "is_autocast",
    "is_bookkeeping",
    "is_compiled_by_xla",
    "is_functional",
    "is_only_inferring_shapes",
    "is_stateless",
    "kind_of_keras_code",
    "lambda_config",
    "losses_restored",
    "mask_of",
    "may_be_written",
    "metric_directions",
    "names_of_another_process",
    "no_tape",
    "onednn_accepts",
    "onednn_is_enabled",
    "op_callbacks_off",
    "original_operation",
    "originals_remembered",
    "own_non_trainable_variables",
    "own_variables",
    "random_state_restored",
    "refresh_symbolic_dtypes",
    "registered_kernels",
    "replace_policy",
    "replicas_need_no_merge_call",
    "seeded",
    "serialized",
    "set_input_dtypes",
    "set_mask",
    "sharing_revived",
    "spared_from_decay",
    "stack_frames",
    "state_restored_on_failure",
    "stored_dtype",
    "trace_to_graph",
    "traced_function_graph",
    "tracked_layers",
    "train_function_patch",
    "trainable_variables_of",
    "training_accompanied",
    "unbuilt_again",
    "unsafe_deserialization",
    "writes_its_layers",
    "written_variables",
]
