"""Train steps of one's own: they scale their loss in several ways, and one forgot."""

import keras
import numpy as np
import tensorflow as tf

x = np.ones((8, 2), "float32")


class Scaling(keras.Model):
    def __init__(self, **options):
        super().__init__(**options)
        self.head = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")

    def call(self, inputs):
        return self.head(inputs)

    def loss_to_descend(self, loss):
        return self.optimizer.scale_loss(loss)

    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=inputs, y=targets, y_pred=self(inputs, training=True))
            if self.optimizer is not None:
                scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class Forgetting(Scaling):
    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=inputs, y=targets, y_pred=self(inputs, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))  # noqa: B905
        return {"loss": loss}


class Handing(Scaling):
    """Does something of its own, and hands the step on to Keras."""

    def train_step(self, data):
        self.seen = True
        return keras.Model.train_step(self, data)


class Helped(Scaling):
    """Scales in a method of its own."""

    def train_step(self, data):
        inputs, targets = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=inputs, y=targets, y_pred=self(inputs, training=True))
            scaled = self.loss_to_descend(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


for model_class in (Scaling, Forgetting, Handing, Helped):
    model = model_class(name=model_class.__name__.lower())
    # The gradient of mean((w x - 1)^2) is -2 for each of the two weights: they become 0.5.
    model.compile(keras.optimizers.SGD(0.25), "mse")
    model.fit(x, x[:, :1], batch_size=8, verbose=0)
    print(model.name, *np.ravel(model.get_weights()[0]).tolist())
