"""A model made anew in another precision, in memory or from a file.

`convert` and `loading` are the public ends. Between them, each step is a file:
`policies` says what each layer's policy becomes, `twin` makes the new model from
the old one's config, `state` copies weights and everything else that training
changed, `compiling` copies losses, metrics and the optimizer, `check` refuses a
twin that is not what was asked for, and `files` reads what a file was made with.
"""
