"""The language of claims and formulas: a tiny grammar, parsed into a tree. Nothing of it is ever given to Python.

    claim      = expression [ ("<" | "<=" | ">" | ">=" | "=") expression [ "±" expression ] ]
    expression = product { ("+" | "-") product }
    product    = signed { ("*" | "/") signed }
    signed     = [ "-" ] power
    power      = atom [ "^" signed ]
    atom       = number [ "%" ] | "(" expression ")" | "log" atom | word "(" [ argument { "," argument } ] ")"
               | name [ "[" word "=" value { "," word "=" value } "]" ]
    argument   = expression | word "=" expression

A name is a word, with dots if it is a key, or any text between quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

LONGEST = 500  # signs of a text
DEEPEST = 40  # brackets, signs and powers in each other
RELATIONS = ("<=", ">=", "<", ">", "=")
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<word>[A-Za-z_][\w.]*)
    |(?P<quoted>"[^"]*"|'[^']*')
    |(?P<sign><=|>=|\+-|[-+*/^()\[\],=<>%±]))""",
    re.VERBOSE,
)


class LanguageError(ValueError):
    """A text that is no claim or formula, and where."""


@dataclass(frozen=True)
class Literal:
    """A number; `percent`: it was followed by %."""

    value: float
    percent: bool = False


@dataclass(frozen=True)
class Name:
    """A variant, a metric or a constant; `where`: the labels in brackets behind it."""

    text: str
    where: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Call:
    """A function of the language with its arguments."""

    function: str
    arguments: tuple[Expression, ...]
    named: Mapping[str, Expression] = field(default_factory=dict)


@dataclass(frozen=True)
class Arithmetic:
    """Two expressions with + - * / ^ between them."""

    sign: str
    left: Expression
    right: Expression


Expression = Literal | Name | Call | Arithmetic


@dataclass(frozen=True)
class Statement:
    """What a claim says: a call alone, or two sides of a relation; `margin` belongs to =."""

    left: Expression
    relation: str | None = None
    right: Expression | None = None
    margin: Expression | None = None


def parse_claim(text: str) -> Statement:
    """The tree of a claim.

    >>> parse_claim("slope(log gap, log lr) = 2 ± .2").margin
    Literal(value=0.2, percent=False)
    >>> parse_claim("below(a, others, sigmas=3)").left.named["sigmas"].value
    3.0
    >>> parse_claim("below(a, b")
    Traceback (most recent call last):
    commeff.experiments.published.reproduce.language.LanguageError: 'below(a, b' ends where , or ) should stand
    """
    reader = _Reader(text)
    left = reader.expression()
    relation = reader.take(*RELATIONS)
    right = reader.expression() if relation else None
    margin = reader.expression() if reader.take("±", "+-") else None
    reader.end()
    if margin is not None and relation != "=":
        raise LanguageError(f"{text!r}: ± belongs behind =, got it behind {relation or 'no relation'}")
    return Statement(left, relation, right, margin)


def parse_formula(text: str) -> Expression:
    """The tree of a formula.

    >>> parse_formula("2^-log2(n)").sign
    '^'
    """
    reader = _Reader(text)
    found = reader.expression()
    reader.end()
    return found


def walk(tree: Expression | Statement) -> Iterator[Expression]:
    """Every expression in a tree, the whole first."""
    if isinstance(tree, Statement):
        for part in (tree.left, tree.right, tree.margin):
            if part is not None:
                yield from walk(part)
        return
    yield tree
    if isinstance(tree, Arithmetic):
        yield from walk(tree.left)
        yield from walk(tree.right)
    elif isinstance(tree, Call):
        for part in (*tree.arguments, *tree.named.values()):
            yield from walk(part)


class _Reader:
    """A recursive descent over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self.text, self._depth, self._at = text, 0, 0
        if len(text) > LONGEST:
            raise LanguageError(f"a claim or formula must have at most {LONGEST} signs, got {len(text)}")
        self._tokens = [*_tokens(text)]

    def take(self, *signs: str) -> str | None:
        """The next token if it is one of these signs."""
        kind, token = self._next
        if kind != "sign" or token not in signs:
            return None
        self._at += 1
        return token

    def end(self) -> None:
        """Refuse what is left."""
        if self._at < len(self._tokens):
            raise LanguageError(f"{self.text!r}: {self._next[1]!r} has no place there")

    def expression(self) -> Expression:
        return self._deeper(lambda: self._chain(("+", "-"), lambda: self._chain(("*", "/"), self._signed)))

    def _chain(self, signs: tuple[str, ...], part: Callable[[], Expression]) -> Expression:
        found = part()
        while sign := self.take(*signs):
            found = Arithmetic(sign, found, part())
        return found

    def _signed(self) -> Expression:
        if self.take("-"):
            return Arithmetic("-", Literal(0.0), self._deeper(self._signed))
        base = self._atom()
        return Arithmetic("^", base, self._deeper(self._signed)) if self.take("^") else base

    def _atom(self) -> Expression:
        kind, token = self._next
        self._at += 1
        if kind == "number":
            return Literal(float(token), bool(self.take("%")))
        if kind == "sign" and token == "(":
            found = self.expression()
            self._need(")")
            return found
        if kind not in ("word", "quoted"):
            raise LanguageError(f"{self.text!r}: a number or a name must stand where {token or 'the end'!r} is")
        if token == "log" and self._next != ("sign", "("):
            return Call("log", (self._deeper(self._atom),))
        if kind == "word" and self.take("("):
            return self._call(token)
        return Name(token[1:-1] if kind == "quoted" else token, self._where())

    def _call(self, function: str) -> Call:
        arguments: list[Expression] = []
        named: dict[str, Expression] = {}
        while not self.take(")"):
            if arguments or named:
                self._need(",", ")")
            kind, word = self._next
            if kind == "word" and self._tokens[self._at + 1 : self._at + 2] == [("sign", "=")]:
                self._at += 2
                named[word] = self.expression()
            else:
                arguments.append(self.expression())
        return Call(function, tuple(arguments), named)

    def _where(self) -> tuple[tuple[str, str], ...]:
        where: list[tuple[str, str]] = []
        if self.take("["):
            while not where or not self.take("]"):
                if where:
                    self._need(",", "]")
                key = self._word("a label")
                self._need("=")
                where.append((key, self._word("a value")))
        return tuple(where)

    def _word(self, what: str) -> str:
        kind, token = self._next
        if kind not in ("word", "number", "quoted"):
            raise LanguageError(f"{self.text!r}: {what} must stand where {token or 'the end'!r} is")
        self._at += 1
        return token[1:-1] if kind == "quoted" else token

    def _need(self, sign: str, other: str = "") -> None:
        if not self.take(sign):
            kind, token = self._next
            wanted = f"{sign} or {other}" if other else sign
            where = f": {wanted} must stand where {token!r} is" if kind else f" ends where {wanted} should stand"
            raise LanguageError(f"{self.text!r}{where}")

    def _deeper(self, part: Callable[[], Expression]) -> Expression:
        self._depth += 1
        if self._depth > DEEPEST:
            raise LanguageError(f"a claim or formula must be nested at most {DEEPEST} deep, got more")
        found = part()
        self._depth -= 1
        return found

    @property
    def _next(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    place = 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise LanguageError(f"{text!r}: {text[place:].strip()[0]!r} is no sign of the language")
        yield str(match.lastgroup), match[str(match.lastgroup)]
        place = match.end()
