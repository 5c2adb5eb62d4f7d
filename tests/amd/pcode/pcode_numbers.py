"""Numbers of AMD's pseudo-code: bits with a type, floats rounded once, and the functions that the documents use without defining them."""
import math
import struct
from fractions import Fraction


class Open(Exception):
    """What the pseudo-code does not say."""


class V:
    """Bits and how they are read."""
    __slots__ = ("bits", "width", "kind")

    def __init__(self, bits, width, kind="u"):
        self.bits, self.width, self.kind = bits & ((1 << width) - 1), width, kind


class Power:
    """2 to a whole number, times 1 or a float: exact until it is multiplied."""

    def __init__(self, exponent):
        self.exponent = exponent


class Denormal:
    """DENORM: equal to every denormal number of its width."""

    def __init__(self, width=64):
        self.width = width


FLOATS = {"f", "bf", "fp8", "bf8"}
SHAPE = {("f", 16): (5, 10), ("f", 32): (8, 23), ("f", 64): (11, 52), ("bf", 16): (8, 7)}


def unpack(bits, kind, width):
    if kind == "f" and width == 32:
        return struct.unpack("<f", struct.pack("<I", bits))[0]
    if kind == "f" and width == 64:
        return struct.unpack("<d", struct.pack("<Q", bits))[0]
    if kind == "f" and width == 16:
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    if kind == "bf":
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    raise Open(f"a float of {width} bits, {kind}")


def rounded(x, kind, width, toward_zero=False):
    """Bits of a float or a Fraction, to the nearest even one."""
    exponent_bits, mantissa = SHAPE[kind, width]
    bias, top = (1 << (exponent_bits - 1)) - 1, (1 << exponent_bits) - 1
    sign = 1 << (width - 1)
    if isinstance(x, float):
        if x != x:
            payload = struct.unpack("<Q", struct.pack("<d", x))[0]
            keep = payload >> (52 - mantissa) & ((1 << mantissa) - 1) if mantissa <= 52 else 0
            return (sign if payload >> 63 else 0) | top << mantissa | keep | 1 << (mantissa - 1)
        negative = math.copysign(1, x) < 0
        if math.isinf(x):
            return (sign if negative else 0) | top << mantissa
        if kind == "f" and width == 64:
            return struct.unpack("<Q", struct.pack("<d", x))[0]
        x = Fraction(x)
    else:
        negative = x < 0
    if x == 0:
        return sign if negative else 0
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    place = max(exponent, 1 - bias) - mantissa
    scaled = size / Fraction(2) ** place
    steps = int(scaled) if toward_zero else round(scaled)  # Python rounds halves to even
    code = steps + ((place - (1 - bias - mantissa)) << mantissa)
    if code >= top << mantissa:
        code = (top << mantissa) - (1 if toward_zero else 0)
    return (sign if negative else 0) | code


def value(v):
    """A V as Python's number: float, or int."""
    if isinstance(v, (int, float)):
        return v
    if v.kind in FLOATS:
        return unpack(v.bits, v.kind, v.width)
    if v.kind == "i":
        return v.bits - (1 << v.width) if v.bits >> (v.width - 1) else v.bits
    return v.bits


def real(x, kind, width):
    return V(rounded(x, kind, width), width, kind)


def truth(v):
    return value(v) != 0


def boolean(x):
    return V(int(bool(x)), 1)


class Cell:
    """A place in memory or a vector register: how wide it is says the type behind it."""

    def __init__(self, read, write):
        self.read, self.write = read, write


def fitted(x, kind, width):
    """A value as it is stored in so many bits."""
    if isinstance(x, Power):
        return real(Fraction(2) ** x.exponent, "f", width)
    if isinstance(x, Denormal):
        raise Open("which denormal number")
    if kind in ("f", "bf") and x.kind in ("f", "bf") and (x.width != width or x.kind != kind):
        return resized(x, kind, width)
    if kind in ("u", "i", "b") and x.kind == "i" and x.width < width:
        return V(value(x), width, kind)
    return V(x.bits, width, kind)


# ---- arithmetic

def negated(x):
    if isinstance(x, Power):
        raise Open("a negative power")
    if x.kind in FLOATS:
        return V(x.bits ^ 1 << (x.width - 1), x.width, x.kind)
    return V(-value(x), max(x.width, 32), "i" if x.kind == "i" else x.kind)


def exact(a, b):
    return Fraction(a), Fraction(b)


def float_result(operator, x, y, kind, width):
    """One operation, rounded once."""
    if operator in ("+", "-", "*"):
        r = x + y if operator == "+" else x - y if operator == "-" else x * y
        if kind == "f" and width == 64 or not math.isfinite(r) or not (math.isfinite(x) and math.isfinite(y)):
            if math.isinf(r) and math.isfinite(x) and math.isfinite(y) and not (kind == "f" and width == 64):
                a, b = exact(x, y)
                return V(rounded(a + b if operator == "+" else a - b if operator == "-" else a * b, kind, width), width, kind)
            return real(r, kind, width)
        a, b = exact(x, y)
        q = a + b if operator == "+" else a - b if operator == "-" else a * b
        if q == 0:
            return real(math.copysign(0.0, r), kind, width)
        return V(rounded(q, kind, width), width, kind)
    if y == 0 or not math.isfinite(x) or not math.isfinite(y):
        if x != x or y != y or (x == 0 and y == 0) or (math.isinf(x) and math.isinf(y)):
            return real(x if x != x else y if y != y else math.nan, kind, width)
        negative = math.copysign(1, x) != math.copysign(1, y)
        if math.isinf(y):
            return real(-0.0 if negative else 0.0, kind, width)
        return real(-math.inf if negative else math.inf, kind, width)
    if x == 0:
        return real(-0.0 if math.copysign(1, x) != math.copysign(1, y) else 0.0, kind, width)
    return V(rounded(Fraction(x) / Fraction(y), kind, width), width, kind)


def scaled(x, exponent):
    v = value(x)
    if not math.isfinite(v) or v == 0:
        return x
    return V(rounded(Fraction(v) * Fraction(2) ** max(min(exponent, 5000), -5000), x.kind, x.width), x.width, x.kind)


def binary(operator, a, b):
    if isinstance(a, Cell):
        a = V(a.read(32), 32, "b")
    if isinstance(b, Cell):
        b = V(b.read(32), 32, "b")
    if isinstance(b, Denormal) or isinstance(a, Denormal):
        if operator != "==":
            raise Open("more of DENORM than that a number is one")
        d, x = (b, a) if isinstance(b, Denormal) else (a, b)
        v = abs(value(x))
        least = Fraction(2) ** {16: -14, 32: -126, 64: -1022}[d.width]
        return boolean(v == v and v != 0 and math.isfinite(v) and Fraction(v) < least)
    if isinstance(a, Power) or isinstance(b, Power):
        if operator != "*":
            raise Open("a power that is not multiplied")
        return scaled(b, a.exponent) if isinstance(a, Power) else scaled(a, b.exponent)
    x, y = value(a), value(b)
    if operator in ("==", "!=", "<>", "<", "<=", ">", ">="):
        return boolean({"==": x == y, "!=": x != y, "<>": x < y or x > y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[operator])
    if a.kind in FLOATS or b.kind in FLOATS:
        wide = max((v for v in (a, b) if v.kind in FLOATS), key=lambda v: v.width)
        return float_result(operator, float(x), float(y), wide.kind, wide.width)
    width = max(a.width, b.width)
    kind = "i" if a.kind == "i" and b.kind == "i" else "u"
    if operator == "<<":
        return V(a.bits << y if y < a.width else 0, a.width, a.kind)
    if operator == ">>":
        return V(x >> min(y, a.width), a.width, a.kind)
    if operator == "/":
        return V(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1), width, kind)
    if operator == "%":
        return V(x % y, width, kind)
    return V({"+": x + y, "-": x - y, "*": x * y, "&": x & y, "|": x | y, "^": x ^ y}[operator], width, kind)


def resized(x, kind, width):
    """A float in another format; a signaling NaN stays one."""
    if (x.kind, x.width) == (kind, width):
        return x
    v = value(x)
    if v == v:
        return real(v, kind, width)
    (_, old), (exponent_bits, new) = SHAPE[x.kind, x.width], SHAPE[kind, width]
    payload = x.bits & ((1 << old) - 1)
    payload = payload << (new - old) if new >= old else payload >> (old - new)
    return V(x.bits >> (x.width - 1) << (width - 1) | ((1 << exponent_bits) - 1) << new | payload, width, kind)


def cast(x, width, letter):
    if isinstance(x, Denormal):
        return Denormal(width)
    if isinstance(x, Power):
        return x
    if isinstance(x, Cell):
        x = V(x.read(32), 32, "b")
    if letter == "B":
        return V(value(x) if x.kind == "i" else x.bits, width, "b")
    if letter == "F":
        if x.kind in FLOATS:
            return resized(x, "f", width)
        return V(x.bits, width, "f")  # bits of a constant
    return V(int(value(x)), width, "u" if letter == "U" else "i")


# ---- functions that the documents use without defining them

def to_integer(width, signed):
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)

    def convert(x):
        v = value(x)
        n = 0 if v != v else low if v <= low else high if v >= high else int(v)
        return V(n, width, "i" if signed else "u")
    return convert


def from_integer(width):
    return lambda x: V(rounded(Fraction(value(x)), "f", width), width, "f")


def whole(function):
    """A function of an exact number; what has no fraction stays."""
    def run(x):
        v = value(x)
        if not math.isfinite(v):
            return V(x.bits, x.width, x.kind) if v == v else real(v, x.kind, x.width)
        n = function(Fraction(v))
        return real(math.copysign(0.0, v), x.kind, x.width) if n == 0 else V(rounded(Fraction(n), x.kind, x.width), x.width, x.kind)
    return run


def fused(a, b, c):
    x, y, z = value(a), value(b), value(c)
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        for v in (x, y, z):
            if v != v:
                return real(v, c.kind, c.width)
        p = math.nan if (x == 0 or y == 0) and (math.isinf(x) or math.isinf(y)) else (
            math.copysign(math.inf, math.copysign(1, x) * math.copysign(1, y)) if math.isinf(x) or math.isinf(y) else 0.0)
        return real(p + z, c.kind, c.width)
    r = Fraction(x) * Fraction(y) + Fraction(z)
    if r == 0:
        p = math.copysign(1, x) * math.copysign(1, y) * (0.0 if x == 0 or y == 0 else 1.0)
        zero = p + z if x == 0 or y == 0 else 0.0
        return real(zero, c.kind, c.width)
    return V(rounded(r, c.kind, c.width), c.width, c.kind)


def by_double(function):
    """To an ulp on the hardware: nearest here."""
    def run(x):
        v = value(x)
        try:
            r = function(v)
        except (ValueError, OverflowError, ZeroDivisionError):
            r = math.nan if v < 0 or v != v else math.inf
        return real(r, x.kind, x.width)
    return run


def normal(width, signed):
    def convert(x):
        v = value(x)
        top = (1 << (width - 1)) - 1 if signed else (1 << width) - 1
        v = 0 if v != v else max(-1 if signed else 0, min(1, v))
        return V(round(Fraction(v) * top), width, "i" if signed else "u")
    return convert


def saturating(width, signed):
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    return lambda x: V(max(low, min(high, value(x))), width, "i" if signed else "u")


def biased(x):
    exponent_bits, mantissa = SHAPE[x.kind, x.width]
    return V(x.bits >> mantissa & ((1 << exponent_bits) - 1), 32, "i")


def mantissa_of(x):
    """As the documents use it: the bits where they are cut out, a number in [0.5, 1) with the sign elsewhere."""
    v = value(x)
    m, _ = math.frexp(v) if math.isfinite(v) else (v, 0)
    return real(m, x.kind, x.width)


def is_nan(x, quiet):
    exponent_bits, mantissa = SHAPE[x.kind, x.width]
    if value(x) == value(x):
        return boolean(False)
    return boolean(quiet is None or bool(x.bits >> (mantissa - 1) & 1) == quiet)


def extended(x, n):
    bits, count = x.bits, value(n)
    if count == 0:
        return V(0, x.width, "i")
    if count >= x.width:
        return V(bits, x.width, "i")
    field = bits & ((1 << count) - 1)
    return V(field - (1 << count) if field >> (count - 1) else field, x.width, "i")


def first_one(x):
    return V((x.bits & -x.bits).bit_length() - 1, 32, "i")


FUNCTIONS = {
    "signext": lambda x: V(value(V(x.bits, x.width, "i")), 64, "i"),
    "signext_from_bit": extended,
    "fma": fused,
    "abs": lambda x: V(x.bits & ~(1 << (x.width - 1)), x.width, x.kind) if x.kind in FLOATS else V(abs(value(x)), x.width, x.kind),
    "sign": lambda x: V(x.bits >> (x.width - 1), 1),
    "exponent": biased,
    "mantissa": mantissa_of,
    "trunc": whole(math.trunc),
    "floor": whole(math.floor),
    "fract": lambda x: binary("-", x, FUNCTIONS["floor"](x)),
    "isEven": lambda x: boolean(math.isfinite(value(x)) and int(value(x)) % 2 == 0),
    "isNAN": lambda x: is_nan(x, None),
    "isQuietNAN": lambda x: is_nan(x, True),
    "isSignalNAN": lambda x: is_nan(x, False),
    "cvtToQuietNAN": lambda x: V(x.bits | 1 << (SHAPE[x.kind, x.width][1] - 1), x.width, x.kind),
    "ldexp": lambda x, n: scaled(x, value(n)),
    "sqrt": by_double(lambda v: math.sqrt(v) if v == v and v > 0 else v if v == 0 or v != v else math.nan),
    "pow": lambda b, x: by_double(lambda y: y if y != y else 2.0 ** y if y < 2000 else math.inf)(x),
    "s_ff1_i32_b32": first_one,
    "s_ff1_i32_b64": first_one,
    "log2": by_double(lambda v: -math.inf if v == 0 else math.log2(v)),
    "sin": by_double(math.sin),
    "cos": by_double(math.cos),
    "f32_to_f16": lambda x: real(value(x), "f", 16),
    "f16_to_f32": lambda x: real(value(x), "f", 32),
    "bf16_to_f32": lambda x: real(value(x), "f", 32),
    "f32_to_bf16": lambda x: real(value(x), "bf", 16),
    "f32_to_f64": lambda x: real(value(x), "f", 64),
    "f64_to_f32": lambda x: real(value(x), "f", 32),
    "f32_to_snorm": normal(16, True),
    "f32_to_unorm": normal(16, False),
    "f16_to_snorm": normal(16, True),
    "f16_to_unorm": normal(16, False),
    "u32_to_u16": saturating(16, False),
    "i32_to_i16": saturating(16, True),
    "s_nop": lambda *_: None,
}
for _width in (16, 32, 64):
    for _integer in (16, 32):
        FUNCTIONS[f"f{_width}_to_i{_integer}"] = to_integer(_integer, True)
        FUNCTIONS[f"f{_width}_to_u{_integer}"] = to_integer(_integer, False)
        FUNCTIONS[f"i{_integer}_to_f{_width}"] = FUNCTIONS[f"u{_integer}_to_f{_width}"] = from_integer(_width)
for _small in ("i4", "i8", "i16", "u4", "u8", "u16"):
    FUNCTIONS[f"{_small}_to_{_small[0]}32"] = lambda x, s=_small[0]: V(value(x), 32, s)
