"""What each code is about, for reports that describe rules apart from findings."""

from __future__ import annotations

from typing import Final

__all__ = ["ADVICE"]

#: Why a code matters and what to do, by code, whatever the model.
ADVICE: Final = {
    "AMP101": "A float32 operand widens the layer, and what follows computes in float32 too. Cast "
    'it to `self.compute_dtype`, or give the layer `dtype="float32"` if that is meant.',
    "AMP102": "NumPy makes float64 unless told otherwise, and float64 is slow everywhere. Cast the "
    "wide operand to `self.compute_dtype`.",
    "AMP103": "The layer says that it computes in half, but its products, the costly part, do not. "
    "Remove the cast around them, or give the inner layer the outer one's policy.",
    "AMP104": "The model was built before the precision was set, in another thread, or comes from "
    "a file. Build it afterwards, or convert it with `tf_amp_kit.convert_model`.",
    "AMP105": "Keras casts inputs of layers only. Cast the wide operand to the tensor's dtype, or "
    "do this inside a layer.",
    "AMP106": "The value is cast to another float dtype and back without use. Let neighbours "
    "compute in one dtype.",
    "AMP107": "TensorFlow does not promote dtypes: the call raises. Cast one side to the other's "
    "dtype.",
    "AMP108": "The level keeps sensitive layers in float32 only once it is applied: call "
    "`tf_amp_kit.pin_float32(model)` after the model is built.",
    "AMP201": "Losses, metrics and sums of predictions inherit the range and the rounding of half "
    'precision. Call `tf_amp_kit.pin_float32(model)`, or give the last layer `dtype="float32"`.',
    "AMP202": "A confidently wrong sample saturates a half sigmoid or softmax, and gets a gradient "
    "of exactly zero. Keep the layer in float32, or return logits with `from_logits=True`.",
    "AMP203": "Frameworks keep this operation in float32 by default, because it sums or widens "
    "the range. Put it into a `tf_amp_kit.float32_op` if values can be large, tiny or many.",
    "AMP204": "The constant is beyond the largest value of the dtype and becomes infinite. Use "
    "`tf_amp_kit.safe_mask_value`.",
    "AMP205": "The constant is below what the dtype resolves and becomes 0 or 1. Use "
    "`tf_amp_kit.safe_epsilon`, or compute the line in float32.",
    "AMP206": "Raw inputs become infinite, or different ones equal, before any layer sees them. "
    "Scale them before the model, or in a layer in float32.",
    "AMP207": "Half precision merges integers above 2048 (float16) or 256 (bfloat16). Give the "
    "model an integer input, and keep ids away from layers that compute in half.",
    "AMP301": "Gradients below 3e-8 become exactly zero in float16. Wrap the optimizer: "
    "`tf_amp_kit.make_loss_scale_optimizer(optimizer)`.",
    "AMP302": "Updates smaller than the rounding step of a half variable are lost. Use a mixed "
    "policy, which keeps float32 master weights.",
    "AMP303": "Keras adds the losses up, and a half one beside a float32 one raises TypeError in "
    "`fit`. Cast the loss to float32, or keep the layer in float32.",
    "AMP401": "TensorFlow has no kernel of this operation for the dtype on this device: it raises "
    'when it runs. Give the layer `dtype="float32"`, or use the other half precision.',
    "AMP402": "This machine runs the dtype slower than float32. Train elsewhere, or in another "
    "precision: `tf-amp-kit hardware` lists what is fast, and why.",
    "AMP403": "Tensor cores run fully only with dimensions that are multiples of 8. Round units, "
    "channels and vocabulary up.",
}
