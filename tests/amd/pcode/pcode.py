"""An interpreter of the pseudo-code of AMD's instruction set documents: text to closures, numbers as bits with a type.

The language: assignments to parts of registers (`D0[31 : 16].f16 = ..`), types behind a dot, sizes before an apostrophe (`64'U(x)`,
`1'1U`), if, for, while, lambdas, arrays. What a number's type says: u unsigned, i two's complement, f float, b bits.
"""
import math
import re
from fractions import Fraction

from pcode_numbers import FUNCTIONS, Cell, Denormal, Open, Power, V, binary, boolean, cast, fitted, negated, real, rounded, truth, value

# ---- words of the language

TOKEN = re.compile(r"""\s*(?:
  (?P<sized>\d+'-?(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)(?:ULL|LL|U|F|L)?)
 |(?P<cast>\d+'[UIFB]\b)
 |(?P<number>0x[0-9a-fA-F]+(?:ULL|LL|U|L)?|\d+\.\d+F?|\d+(?:ULL|LL|U|L)?)
 |(?P<name>[A-Za-z_][A-Za-z_0-9]*)
 |(?P<mark>\+:|\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||\+=|-=|\|=|&=|[-+*/%&|^~!<>=?:;,.(){}\[\]])
)""", re.X)
TYPE = re.compile(r"(u|i|f|b|bf|fp|s)(\d+)$")


def words_of(text):
    text = re.sub(r"//[^\n]*", "", text).strip()
    out, at = [], 0
    while at < len(text):
        m = TOKEN.match(text, at)
        if not m:
            if not text[at:].strip():
                break
            raise Open(f"a word of the pseudo-code: {text[at:at + 20]!r}")
        kind = m.lastgroup
        out.append((kind, m.group(kind)))
        at = m.end()
    return out + [("end", "")]


def number(text, width=None):
    kind, digits = "i", text
    size = 32
    for ending, k, w in (("ULL", "u", 64), ("LL", "i", 64), ("U", "u", 32), ("L", "i", 64)):
        if digits.endswith(ending):
            digits, kind, size = digits[:-len(ending)], k, w
            break
    if "." in digits or (digits.endswith("F") and not digits.startswith("0x")):
        wide = 32 if digits.endswith("F") else 64
        return real(float(digits.rstrip("F")), "f", width or wide)
    n = int(digits, 0)
    if width is None and n >> size:
        size = 64
    if width is not None and kind == "i":
        kind = "u"
    return V(n, width or size, kind)


class Break(Exception):
    pass


class Return(Exception):
    def __init__(self, result):
        self.result = result


class Parser:
    """Recursive descent; every rule gives a closure of the environment."""

    def __init__(self, text):
        self.words, self.at = words_of(text), 0

    def peek(self, k=0):
        return self.words[min(self.at + k, len(self.words) - 1)][1]

    def take(self, word=None):
        kind, text = self.words[self.at]
        if word is not None and text != word:
            raise Open(f"{word!r} expected before {text!r}")
        self.at += 1
        return text

    def statements(self, ends):
        out = []
        while True:
            while self.peek() == ";":
                self.take()
            if self.peek() in ends:
                return out
            if self.words[self.at][0] == "end":
                raise Open("the pseudo-code ends in the middle")
            out.append(self.statement())

    def block(self, ends):
        body = self.statements(ends)

        def run(e):
            for s in body:
                s(e)
        return run

    def statement(self):
        word = self.peek()
        rule = {"if": self.condition, "for": self.loop, "while": self.repeat, "declare": self.declaration}.get(word)
        if rule:
            return rule()
        if word == "break":
            self.take()

            def stop(e):
                raise Break
            return stop
        if word == "return":
            self.take()
            result = self.expression()

            def leave(e):
                raise Return(result(e))
            return leave
        if self.peek(1) == "=" and self.peek(2) == "lambda":
            return self.function()
        return self.assignment()

    def condition(self):
        cases = []
        otherwise = None
        self.take("if")
        while True:
            test = self.expression()
            self.take("then")
            cases.append((test, self.block(("elsif", "else", "endif"))))
            word = self.take()
            if word == "else":
                otherwise = self.block(("endif",))
                word = self.take("endif")
            if word == "endif":
                break

        def run(e):
            for test, body in cases:
                if truth(test(e)):
                    return body(e)
            if otherwise:
                otherwise(e)
        return run

    def loop(self):
        self.take("for")
        name = self.take()
        self.take("in")
        first = self.expression()
        self.take(":")
        last = self.expression()
        self.take("do")
        body = self.block(("endfor",))
        self.take("endfor")

        def run(e):
            for n in range(value(first(e)), value(last(e)) + 1):
                e[name] = V(n, 32, "i")
                try:
                    body(e)
                except Break:
                    break
        return run

    def repeat(self):
        self.take("while")
        test = self.expression()
        self.take("do")
        body = self.block(("endwhile",))
        self.take("endwhile")

        def run(e):
            while truth(test(e)):
                body(e)
        return run

    def declaration(self):
        self.take("declare")
        name = self.take()
        self.take(":")
        kind, text = self.words[self.at]
        width, letter = text.split("'")
        self.take()
        count = None
        if self.peek() == "[":
            self.take()
            count = value(self.expression()({}))
            self.take("]")
        kind = {"B": "b"}.get(letter, letter.lower())

        def run(e):
            if name in e.get("given", ()):
                return
            one = V(0, int(width), kind)
            e[name] = one if count is None else [one] * count
        return run

    def function(self):
        name = self.take()
        self.take("="), self.take("lambda"), self.take("(")
        parameters = []
        while self.peek() != ")":
            parameters.append(self.take())
            if self.peek() == ",":
                self.take()
        self.take(")")
        self.take("(")
        start = self.at
        try:
            result = self.expression()
            self.take(")")
        except Open:
            self.at, result = start, None
            body = self.block((")",))
            self.take(")")

        def define(e):
            def call(*arguments):
                inner = dict(e)
                inner.update(zip(parameters, arguments))
                if result:
                    return result(inner)
                try:
                    body(inner)
                except Return as r:
                    return r.result
                raise Open("a function without a result")
            e[name] = call
        return define

    def assignment(self):
        if self.peek() == "{":  # { D1.u1, D0.u64 } = ..
            self.take()
            parts = [self.target()]
            while self.peek() == ",":
                self.take()
                parts.append(self.target())
            self.take("}")
            self.take("=")
            source = self.expression()

            def spread(e):
                bits = value(source(e))
                for put, width in reversed(parts):
                    put(e, V(bits, width, "b"))
                    bits >>= width
            return spread
        begin = self.at
        if self.words[self.at][0] == "name" and self.peek(1) == "(":
            call = self.expression()
            return lambda e: call(e)
        put, _ = self.target()
        operator = self.take()
        if operator == "=":
            begin, second = self.at, None
            if self.words[self.at][0] == "name":  # EXEC = D0 = ..
                second, _ = self.target()
                if self.peek() != "=":
                    self.at, second = begin, None
                else:
                    self.take()
            source = self.expression()

            def assign(e):
                x = source(e)
                put(e, x)
                if second:
                    second(e, x)
            return assign
        if operator not in ("+=", "-=", "|=", "&="):
            raise Open(f"{operator!r} where an assignment is expected")
        end = self.at
        self.at = begin
        old = self.postfix()
        self.at = end
        source = self.expression()
        return lambda e: put(e, binary(operator[0], old(e), source(e)))

    def target(self):
        """What can be assigned to: a name, then indices and types. Gives a function and the width that it takes."""
        name = self.take()
        steps = []
        width = 32
        while True:
            if self.peek() == "[":
                self.take()
                high = self.expression()
                low = None
                if self.peek() == ":":
                    self.take()
                    low = self.expression()
                self.take("]")
                steps.append(("at", high, low))
            elif self.peek() == "." and TYPE.match(self.peek(1)):
                self.take()
                m = TYPE.match(self.take())
                steps.append(("type", m[1], int(m[2])))
                width = int(m[2])
            elif self.peek() == ".":
                self.take()
                name += "." + self.take()
            else:
                break

        def put(e, x):
            store(e, name, steps, x)
        return put, width

    # ---- expressions, weakest first
    def expression(self):
        test = self.binaries(0)
        if self.peek() != "?":
            return test
        self.take()
        yes = self.expression()
        self.take(":")
        no = self.expression()
        return lambda e: yes(e) if truth(test(e)) else no(e)

    LEVELS = [("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!=", "<>"), ("<", "<=", ">", ">="), ("<<", ">>"), ("+", "-"), ("*", "/", "%")]

    def binaries(self, level):
        if level == len(self.LEVELS):
            return self.power()
        left = self.binaries(level + 1)
        while self.peek() in self.LEVELS[level]:
            operator = self.take()
            right = self.binaries(level + 1)
            left = self.joined(operator, left, right)
        return left

    @staticmethod
    def joined(operator, left, right):
        if operator == "&&":
            return lambda e: boolean(truth(left(e)) and truth(right(e)))
        if operator == "||":
            return lambda e: boolean(truth(left(e)) or truth(right(e)))
        return lambda e: binary(operator, left(e), right(e))

    def power(self):
        left = self.unary()
        if self.peek() != "**":
            return left
        self.take()
        right = self.unary()

        def run(e):
            if value(left(e)) != 2:
                raise Open("a power of another number than 2")
            return Power(value(right(e)))
        return run

    def unary(self):
        word = self.peek()
        if word == "-":
            self.take()
            x = self.unary()
            return lambda e: negated(x(e))
        if word == "+":
            self.take()
            return self.unary()
        if word == "~":
            self.take()
            x = self.unary()

            def flip(e):
                v = x(e)
                return V(~v.bits, v.width, v.kind)
            return flip
        if word == "!":
            self.take()
            x = self.unary()
            return lambda e: boolean(not truth(x(e)))
        return self.postfix()

    def postfix(self):
        x = self.primary()
        while True:
            if self.peek() == "[":
                self.take()
                high = self.expression() if self.peek(1) != "+:" else self.binaries(0)
                low, count = None, None
                if self.peek() == ":":
                    self.take()
                    low = self.expression()
                elif self.peek() == "+:":
                    self.take()
                    count = self.expression()
                self.take("]")
                x = self.index(x, high, low, count)
            elif self.peek() == "." and TYPE.match(self.peek(1)):
                self.take()
                m = TYPE.match(self.take())
                if self.peek() != "[" or m[1] not in "uib":  # bits behind the type are named by number: S0.u32[63 : 32]
                    x = self.viewed(x, m[1], int(m[2]))
            else:
                return x

    @staticmethod
    def viewed(x, kind, width):
        kind = {"s": "i"}.get(kind, kind)

        def run(e):
            v = x(e)
            if isinstance(v, Denormal):
                return Denormal(width)
            if isinstance(v, Cell):
                return V(v.read(width), width, kind)
            if isinstance(v, float):
                return real(v, kind, width)
            if isinstance(v, Row):
                raise Open("a row of registers as a number")
            return V(v.bits, width, kind)
        return run

    @staticmethod
    def index(x, high, low, count):
        def run(e):
            v, n = x(e), value(high(e))
            if isinstance(v, (list, Lanes, Row, Memory)):
                return v[n]
            if isinstance(v, Cell):
                v = V(v.read(32), 32, "b")
            if low is not None:
                m = value(low(e))
                if n < m:
                    return V(sum((v.bits >> (m - k) & 1) << k for k in range(m - n + 1)), m - n + 1)
                return V(v.bits >> m, n - m + 1, "u")
            if count is not None:
                return V(v.bits >> n, value(count(e)), "u")
            return V(v.bits >> n, 1)
        return run

    def primary(self):
        kind, text = self.words[self.at]
        self.at += 1
        if kind == "sized":
            width, digits = text.split("'")
            v = negated(number(digits[1:], int(width))) if digits[0] == "-" else number(digits, int(width))
            return lambda e: v
        if kind == "number":
            v = number(text)
            return lambda e: v
        if kind == "cast":
            width, letter = text.split("'")
            self.take("(")
            x = self.expression()
            self.take(")")
            return lambda e: cast(x(e), int(width), letter)
        if text == "(":
            x = self.expression()
            self.take(")")
            return x
        if text == "{":
            parts = [self.expression()]
            while self.peek() == ",":
                self.take()
                parts.append(self.expression())
            self.take("}")

            def join(e):
                bits = width = 0
                for p in parts:
                    v = p(e)
                    v = V(v.read(32), 32) if isinstance(v, Cell) else v
                    bits, width = bits << v.width | v.bits, width + v.width
                return V(bits, width, "b")
            return join
        if kind != "name":
            raise Open(f"{text!r} where a value is expected")
        if self.peek() == "(":
            return self.call(text)
        while self.peek() == "." and not TYPE.match(self.peek(1)):
            self.take()
            text += "." + self.take()

        def load(e):
            if text in e:
                return e[text]
            raise Open(f"what {text} is")
        return load

    def call(self, name):
        self.take("(")
        arguments = []
        while self.peek() != ")":
            arguments.append(self.expression())
            if self.peek() == ",":
                self.take()
        self.take(")")

        def run(e):
            f = e.get(name) or FUNCTIONS.get(name)
            if f is None:
                f = e["instruction"](name)
            given = [a(e) for a in arguments]
            if name == "f32_to_f16" and value(e["ROUND_MODE"]) == 3:
                x = value(given[0])
                return V(rounded(Fraction(x), "f", 16, True), 16, "f") if math.isfinite(x) and x != 0 else real(x, "f", 16)
            return f(*[V(g.read(32), 32, "b") if isinstance(g, Cell) else g for g in given])
        return run


# ---- places

class Lanes:
    """VGPR[lane][register]: numbers of registers to columns of lanes."""

    def __init__(self, registers):
        self.registers = registers

    def __getitem__(self, lane):
        return Row(self.registers, lane)


class Row:
    """The vector registers of a lane."""

    def __init__(self, registers, lane):
        self.registers, self.lane = registers, lane

    def __getitem__(self, n):
        lane, column = self.lane, self.registers[n]

        def read(width):
            if width > 32:
                return column[lane] | self.registers[n + 1][lane] << 32
            return column[lane] & ((1 << width) - 1)

        def write(low, width, bits):
            mask = ((1 << width) - 1) << low
            column[lane] = column[lane] & ~mask | bits << low & mask
        return Cell(read, write)


class Memory:
    """Bytes from an address on."""

    def __init__(self, base, data):
        self.base, self.data = base, data

    def __getitem__(self, address):
        at = address - self.base
        if not 0 <= at < len(self.data):
            raise Open(f"memory at {address:#x}")

        def read(width):
            return int.from_bytes(self.data[at:at + width // 8], "little")

        def write(low, width, bits):
            old = read(low + width)
            mask = ((1 << width) - 1) << low
            self.data[at:at + (low + width) // 8] = (old & ~mask | bits << low & mask).to_bytes((low + width) // 8, "little")
        return Cell(read, write)


def store(e, name, steps, x):
    if isinstance(x, Cell):
        x = V(x.read(32), 32, "b")
    place, low, width, kind = e.get(name), 0, None, None
    steps = list(steps)
    while isinstance(place, (list, Lanes, Row, Memory)):
        if not steps or steps[0][0] != "at":
            raise Open(f"all of {name} at once")
        n = value(steps.pop(0)[1](e))
        if isinstance(place, list):
            if not steps:
                place[n] = fitted(x, place[n].kind, place[n].width)
                return
            raise Open("a part of an array's element")
        place = place[n]
    for step in steps:
        if step[0] == "at":
            high = value(step[1](e))
            last = high if step[2] is None else value(step[2](e))
            if high < last:  # reversed bits
                x = V(sum((x.bits >> (last - high - k) & 1) << k for k in range(last - high + 1)), last - high + 1)
                high, last = last, high
            low, width = low + last, high - last + 1
            kind = None
        else:
            kind, width = {"s": "i"}.get(step[1], step[1]), step[2] if width is None or step[2] < width or kind is None else width
    if width is None:
        if isinstance(place, Cell):
            return place.write(0, x.width, fitted(x, x.kind, x.width).bits)
        if name in e.get("fixed", ()) and isinstance(place, V):
            x = fitted(x, x.kind, x.width)
            e[name] = V(place.bits >> x.width << x.width | x.bits, max(place.width, x.width), place.kind)
            return
        e[name] = x
        return
    fit = fitted(x, kind or x.kind, width)
    if isinstance(place, Cell):
        return place.write(low, width, fit.bits)
    if not isinstance(place, V) or (name not in e.get("fixed", ()) and steps[0][0] == "type" and len(steps) == 1):
        if low == 0 and not any(s[0] == "at" for s in steps):
            e[name] = V(fit.bits, width, kind or "u")
            return
        place = V(0, 128, "b") if not isinstance(place, V) else place
    mask = ((1 << width) - 1) << low
    whole = max(place.width, low + width)
    e[name] = V(place.bits & ~mask | fit.bits << low & mask, whole, place.kind)


def compiled(text):
    """A function of the environment that executes the text."""
    p = Parser(text)
    return p.block(("",)) if p.words[-1][0] == "end" else None
