"""Lets `python -m tf_amp_kit` do what `tf-amp-kit` does."""

from tf_amp_kit.cli import console_main

if __name__ == "__main__":
    console_main()
