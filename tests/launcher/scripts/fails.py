"""Fails in its second function, by way of another error."""


def inner():
    return {}["nothing"]


def outer():
    try:
        inner()
    except KeyError as error:
        raise ValueError("no such thing") from error


print("before")
outer()
