"""A GAN with two optimizers and a `compile` of its own."""

import keras
import numpy as np
import tensorflow as tf

real = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")


class Gan(keras.Model):
    def __init__(self):
        super().__init__(name="gan")
        self.generator = keras.Sequential([keras.Input((2,)), keras.layers.Dense(4)])
        self.discriminator = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])

    def compile(self, generator_optimizer, discriminator_optimizer, loss_fn):
        super().compile()
        self.generator_optimizer = generator_optimizer
        self.discriminator_optimizer = discriminator_optimizer
        self.loss_fn = loss_fn

    def call(self, noise):
        return self.discriminator(self.generator(noise))

    def train_step(self, images):
        noise = tf.random.normal((tf.shape(images)[0], 2))
        with tf.GradientTape(persistent=True) as tape:
            said_of_real = self.discriminator(images)
            said_of_fake = self.discriminator(self.generator(noise))
            right = self.loss_fn(tf.ones_like(said_of_real), said_of_real) + self.loss_fn(
                tf.zeros_like(said_of_fake), said_of_fake
            )
            fooled = self.loss_fn(tf.ones_like(said_of_fake), said_of_fake)
        for net, loss, optimizer in (
            (self.discriminator, right, self.discriminator_optimizer),
            (self.generator, fooled, self.generator_optimizer),
        ):
            weights = net.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))  # noqa: B905
        return {"right": right, "fooled": fooled}


gan = Gan()
gan.compile(
    keras.optimizers.Adam(1e-3),
    keras.optimizers.Adam(1e-3),
    keras.losses.BinaryCrossentropy(from_logits=True),
)
history = gan.fit(real, epochs=2, batch_size=8, verbose=0)
print(gan.generator.layers[0].compute_dtype, sorted(history.history))
print(all(np.isfinite(one).all() for one in gan.get_weights()))
