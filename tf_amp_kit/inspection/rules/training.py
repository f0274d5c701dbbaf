"""AMP301 to AMP303: what goes wrong only once the model trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tf_amp_kit.inspection.findings import Finding, finding
from tf_amp_kit.inspection.inquiry import Inquiry

_SCALE_FIX: Final = (
    "Wrap it: `tf_amp_kit.make_loss_scale_optimizer(optimizer)`. Keras does so by itself only if "
    "the model's own policy is exactly `mixed_float16`; in a custom loop, call `scale_loss` too."
)


def unscaled_optimizers(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP301: float16 gradients underflow to zero without loss scaling."""
    told = {facts.compute_dtype for facts in inquiry.trace.layers}
    told.update(call.compute_dtype for call in inquiry.trace.calls)
    if "float16" not in told:
        return
    for facts in inquiry.trace.layers:
        for optimizer in facts.optimizers:
            if not optimizer.scales:
                yield finding(
                    "AMP301",
                    optimizer.path,
                    optimizer.optimizer_class,
                    "does not scale the loss, although layers compute in float16: gradients "
                    "below 3e-8 become exactly zero",
                    _SCALE_FIX,
                )


def missing_masters(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP302: half variables round small updates away."""
    owners = [facts for facts in inquiry.trace.layers if facts.trainable_half_weights]
    if owners:
        count = sum(len(facts.trainable_half_weights) for facts in owners)
        only = owners[0] if len(owners) == 1 else None
        weights = "trainable variable is" if count == 1 else "trainable variables are"
        yield finding(
            "AMP302",
            only.path if only else "",
            only.layer_class if only else "",
            f"{count} {weights} stored in half precision: updates smaller than the rounding "
            "step are lost",
            "Use a mixed policy, which keeps float32 master weights: "
            f'`tf_amp_kit.enable_amp("{owners[0].compute_dtype}")` before the model is built.',
            affects=() if only else tuple(facts.path for facts in owners),
        )
    for facts in inquiry.trace.layers:
        for optimizer in facts.optimizers:
            if optimizer.half_slots:
                yield finding(
                    "AMP302",
                    optimizer.path,
                    optimizer.optimizer_class,
                    f"keeps {len(optimizer.half_slots)} of its variables in half precision",
                    "Build the model under a mixed policy: slots follow the variables' dtype.",
                )


def half_losses(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP303: Keras adds up losses of different dtypes, and TensorFlow refuses."""
    for facts in inquiry.trace.layers:
        if facts.half_regularized_weights:
            yield finding(
                "AMP303",
                facts.path,
                facts.layer_class,
                f"regularizes {', '.join(facts.half_regularized_weights)}, stored in half "
                "precision: `fit` adds that loss to a float32 one and raises TypeError",
                "Use a mixed policy, which stores the weights in float32.",
            )
    for loss, call in inquiry.trace.half_losses:
        what = "its activity regularizer" if loss.from_regularizer else "add_loss"
        yield finding(
            "AMP303",
            call.path if call else "",
            call.layer_class if call else "",
            f"gets a {loss.dtype} loss from {what}: `fit` adds it to a float32 loss and raises "
            "TypeError",
            '`tf_amp_kit.pin_float32(model)`, or `dtype="float32"` for this layer.'
            if loss.from_regularizer
            else 'Cast it: `self.add_loss(ops.cast(loss, "float32"))`.',
            source=loss.source,
        )
