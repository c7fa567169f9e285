"""Of the contract's types as many as the adapter looks at when it is loaded."""


class Retry:
    pass
