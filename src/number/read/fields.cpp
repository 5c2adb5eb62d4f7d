// Fields of a format: their types and bit positions. Checks that records stay small, that every bit of every entry has
// exactly one position, and that no position is used twice. Proved by tests/number/reader_test.cpp.
#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/messages/spelling.h"
#include "number/read/declaration.h"

namespace lumen::read {
namespace {

constexpr int64_t kMaxRecordBits = int64_t{8} << 19;
constexpr int64_t kMaxEntries = 1 << 17;
constexpr size_t kMaxFields = 128;
constexpr size_t kMaxPieces = 256;

std::optional<int> width_of(std::string_view name) {  // u4 -> 4
  if (name.size() < 2 || (name[0] != 'u' && name[0] != 'i')) return std::nullopt;
  int bits = 0;
  const auto [end, status] = std::from_chars(name.data() + 1, name.data() + name.size(), bits);
  if (status != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return bits;
}

FieldType integer_type(bool is_signed, int64_t bits, const Place& place) {
  if (bits < (is_signed ? 2 : 1) || bits > 64) {
    throw error_at(place, fmt::format("an integer of {} bits", bits), "u1 to u64 and i2 to i64 are possible");
  }
  FieldType t;
  t.is_signed = is_signed;
  t.bits = bits;
  return t;
}

FieldType float_type(bool has_sign, int exponent, int mantissa, int bias, FieldType::Special special) {
  FieldType t;
  t.is_float = true;
  t.has_sign = has_sign;
  t.exponent_bits = exponent;
  t.mantissa_bits = mantissa;
  t.bias = bias;
  t.special = special;
  t.bits = (has_sign ? 1 : 0) + exponent + mantissa;
  return t;
}

FieldType read_float_type(FormatContext& context, const lang::TypeExpr& type, bool has_sign) {
  if (type.params.size() != 4) {
    throw error_at(type.place, fmt::format("'{}' needs <exponent bits, mantissa bits, bias, special>", type.name),
                   "e.g. float<4, 3, 7, fn>; special is ieee, fn, fnuz, finite or scale");
  }
  const int64_t exponent = constant_whole(context, *type.params[0], "the number of exponent bits");
  const int64_t mantissa = constant_whole(context, *type.params[1], "the number of mantissa bits");
  const int64_t bias = constant_whole(context, *type.params[2], "the bias");
  const lang::Expr& special = *type.params[3];
  constexpr std::pair<std::string_view, FieldType::Special> kSpecials[] = {{"ieee", FieldType::Special::ieee},
                                                                           {"fn", FieldType::Special::fn},
                                                                           {"fnuz", FieldType::Special::fnuz},
                                                                           {"finite", FieldType::Special::finite},
                                                                           {"scale", FieldType::Special::scale}};
  const auto* found = std::find_if(std::begin(kSpecials), std::end(kSpecials), [&](const auto& s) {
    return special.kind == lang::ExprKind::name && s.first == special.text;
  });
  if (found == std::end(kSpecials)) {
    throw error_at(special.place, "this is no kind of float", "use ieee, fn, fnuz, finite or scale");
  }
  if (exponent < 0 || exponent > 8 || mantissa < 0 || mantissa > 23 || exponent + mantissa < 1) {
    throw error_at(type.place, fmt::format("a float with {} exponent and {} mantissa bits", exponent, mantissa),
                   "at most 8 and 23 are possible, as in f32");
  }
  const FieldType::Special kind = found->second;
  const bool is_scale = kind == FieldType::Special::scale;
  if (is_scale && (has_sign || mantissa != 0 || exponent < 2)) {
    throw error_at(type.place, "a scale is a power of two without a sign", "write ufloat<8, 0, 127, scale>");
  }
  if (kind == FieldType::Special::fnuz && !has_sign)
    throw error_at(type.place, "fnuz uses the sign bit for NaN", "write float<...>");
  if (kind == FieldType::Special::ieee && exponent < 2)
    throw error_at(type.place, "ieee needs two exponent bits or more");
  const int64_t smallest = is_scale ? -bias : 1 - bias - mantissa;
  const int64_t largest = (int64_t{1} << exponent) - 1 - bias;
  if (bias < -200 || bias > 300 || smallest < -149 || largest > 128) {
    throw error_at(type.place, fmt::format("values from 2^{} to 2^{} do not fit f32", smallest, largest),
                   "change the bias");
  }
  return float_type(has_sign, exponent, mantissa, bias, kind);
}

Level level_of(std::string_view text) {
  if (text == "row") return Level::row;
  if (text == "tile") return Level::tile;
  if (text == "tensor") return Level::tensor;
  return Level::block;
}

// One piece of `at`; `running` is the field's default position, in bits.
LayoutPiece read_piece(FormatContext& context, const lang::LayoutPiece& p, const Field& field, int64_t running) {
  LayoutPiece piece;
  const int width = field.type.bits;
  auto whole = [&](const lang::ExprPtr& e, std::string_view what, int64_t low, int64_t high) {
    const int64_t value = constant_whole(context, *e, what);
    if (value < low || value > high) {
      throw error_at(e->place, fmt::format("{} is {}, but must be in {}..{}", what, value, low, high));
    }
    return value;
  };
  piece.count = field.count;
  if (p.index_from) {
    piece.first = whole(p.index_from, "the first element of a piece", 0, field.count - 1);
    const int64_t last =
        p.index_to ? whole(p.index_to, "the last element of a piece", piece.first, field.count - 1) : piece.first;
    piece.count = last - piece.first + 1;
  }
  piece.bits = width;
  if (p.bits_from) {
    piece.value_bit = whole(p.bits_from, "the first bit of a piece", 0, width - 1);
    const int64_t last =
        p.bits_to ? whole(p.bits_to, "the last bit of a piece", piece.value_bit, width - 1) : piece.value_bit;
    piece.bits = last - piece.value_bit + 1;
  }
  piece.base = running;
  if (p.byte || p.bit) {
    const int64_t byte = p.byte ? whole(p.byte, "the byte of a piece", 0, kMaxRecordBits / 8) : running / 8;
    const int64_t bit = p.bit ? whole(p.bit, "the bit of a piece", 0, kMaxRecordBits) : 0;
    piece.base = 8 * byte + bit;
  }
  if (p.shorthand == "halves") {
    if (8 % piece.bits != 0 || piece.count % (8 / piece.bits) != 0) {
      throw error_at(p.place, fmt::format("'halves' of {} entries of {} bits", piece.count, piece.bits),
                     "the width must divide 8 and the entries must fill whole bytes");
    }
    piece.modes = {{8 / piece.bits, piece.bits}, {piece.count * piece.bits / 8, 8}};
    return piece;
  }
  if (p.modes.empty()) {
    piece.modes = {{piece.count, piece.bits}};
    return piece;
  }
  if (p.modes.size() > 16) throw error_at(p.place, "a piece has at most 16 modes");
  int64_t product = 1;
  for (const auto& [extent, stride] : p.modes) {
    const int64_t size = whole(extent, "the extent of a mode", 1, piece.count);
    piece.modes.push_back({size, whole(stride, "the stride of a mode", 0, kMaxRecordBits)});
    if (size > piece.count / product)
      product = piece.count + 1;
    else
      product *= size;
  }
  if (product != piece.count) {
    std::string shape;
    for (const LayoutMode& m : piece.modes) shape += fmt::format("{}{}", shape.empty() ? "" : " x ", m.extent);
    throw error_at(p.place, fmt::format("the modes hold {} entries, the piece has {}", shape, piece.count),
                   "the product of the extents must be the number of entries");
  }
  return piece;
}

void read_layout(FormatContext& context, const lang::FieldDecl& d, Field& field, int64_t running) {
  if (d.layout.empty()) {
    field.layout = Layout::dense(field.count, field.type.bits, running);
  } else {
    if (d.layout.size() > kMaxPieces) throw error_at(d.place, "too many pieces");
    int64_t position = running;
    for (const lang::LayoutPiece& p : d.layout) {
      field.layout.pieces.push_back(read_piece(context, p, field, position));
      const Layout last{{field.layout.pieces.back()}};
      if (last.end_bit() > kMaxRecordBits) throw error_at(p.place, "the piece is beyond the largest possible record");
      position = (last.end_bit() + 7) / 8 * 8;
    }
  }
  if (field.layout.end_bit() > kMaxRecordBits)
    throw error_at(d.place, fmt::format("field '{}' is too large", field.name));
  if (!covers(field.layout, field.count, field.type.bits)) {
    throw error_at(
        d.place,
        fmt::format("the pieces of '{}' do not cover each bit of its {} entries exactly once", field.name, field.count),
        "give every element [a..b] and every bit range exactly one place");
  }
}

void mark_places(const lang::FieldDecl& d, const Field& field, std::vector<bool>& used) {
  const int64_t end = field.layout.end_bit();
  if (std::ssize(used) < end) used.resize(end, false);
  for (const LayoutPiece& piece : field.layout.pieces) {
    for (int64_t i = piece.first; i < piece.first + piece.count; ++i) {
      const int64_t bit = piece.bit_of(i);
      for (int k = 0; k < piece.bits; ++k) {
        const size_t at = bit + k;
        if (used[at]) {
          throw error_at(
              d.place,
              fmt::format("bit {} of byte {} is used twice (by entry {} of '{}')", at % 8, at / 8, i, field.name),
              "check the bases and strides of the layout");
        }
        used[at] = true;
      }
    }
  }
}

void find_code_field(FormatContext& context, const lang::FormatDecl& declaration) {
  Format& f = context.format;
  bool has_code = false;
  for (const lang::Function& r : declaration.routines) has_code = has_code || r.name == "code";
  if (!has_code) return;
  std::vector<int> marked, fitting;
  for (size_t k = 0; k < f.fields.size(); ++k) {
    if (f.fields[k].level != Level::block || f.fields[k].count != f.block) continue;
    fitting.push_back(k);
    if (declaration.fields[k].level == "element") marked.push_back(k);
  }
  const std::vector<int>& candidates = marked.empty() ? fitting : marked;
  if (candidates.size() != 1) {
    throw error_at(declaration.place,
                   fmt::format("{} fields have one entry per element, so 'code' is ambiguous", candidates.size()),
                   "mark exactly one with 'element', e.g. 'element q : u4'");
  }
  f.code_field = candidates[0];
}

}  // namespace

FieldType read_field_type(FormatContext& context, const lang::TypeExpr& type) {
  if ((type.name == "u" || type.name == "i") && type.params.size() == 1) {
    return integer_type(type.name == "i", constant_whole(context, *type.params[0], "the width"), type.params[0]->place);
  }
  if (type.name == "float" || type.name == "ufloat") return read_float_type(context, type, type.name == "float");
  if (!type.params.empty()) throw error_at(type.place, fmt::format("'{}' takes no parameters", type.name));
  if (type.name == "f32") return float_type(true, 8, 23, 127, FieldType::Special::ieee);
  if (type.name == "f16") return float_type(true, 5, 10, 15, FieldType::Special::ieee);
  if (type.name == "bf16") return float_type(true, 8, 7, 127, FieldType::Special::ieee);
  if (const auto bits = width_of(type.name)) return integer_type(type.name[0] == 'i', *bits, type.place);
  const lang::FormatDecl* other = context.names.format(type.name);
  if (!other) {
    std::vector<std::string> known = {"f32", "f16", "bf16", "u4", "i8", "u8", "float", "ufloat"};
    for (const lang::File* file : context.names.files()) {
      for (const lang::FormatDecl& f : file->formats) known.push_back(f.name);
    }
    throw error_at(type.place, fmt::format("there is no type '{}'", type.name), did_you_mean_any(type.name, known));
  }
  const bool is_element =
      other->fields.size() == 1 && other->params.empty() && other->fields[0].type.name != other->name;
  const std::string& inner = is_element ? other->fields[0].type.name : type.name;
  if (!is_element || (context.names.format(inner) && inner != "f32" && inner != "f16" && inner != "bf16")) {
    throw error_at(type.place, fmt::format("format '{}' is no element type", type.name),
                   "an element type has one field, one code");
  }
  return read_field_type(context, other->fields[0].type);
}

void read_fields(FormatContext& context, const lang::FormatDecl& declaration) {
  Format& f = context.format;
  if (declaration.fields.size() > kMaxFields) throw error_at(declaration.place, "too many fields");
  int64_t running[kLevels] = {};
  int64_t ends[kLevels] = {};
  std::vector<bool> used[kLevels];
  for (const lang::FieldDecl& d : declaration.fields) {
    Field field;
    field.name = d.name;
    field.level = level_of(d.level);
    for (const Field& other : f.fields) {
      if (other.name == d.name) throw error_at(d.place, fmt::format("field '{}' is declared twice", d.name));
    }
    if (context.parameters.contains(d.name))
      throw error_at(d.place, fmt::format("'{}' is a parameter already", d.name));
    field.type = read_field_type(context, d.type);
    if (d.type.dims.size() > 1 || d.type.leading_any) throw error_at(d.type.place, "a field has at most one dimension");
    if (!d.type.dims.empty()) {
      field.count = constant_whole(context, *d.type.dims[0], "the number of entries");
      if (field.count < 1 || field.count > kMaxEntries) {
        throw error_at(d.type.place,
                       fmt::format("a field of {} entries (1 to {} are possible)", field.count, kMaxEntries));
      }
    }
    if (d.level == "element") field.count *= f.block;
    if (field.count > kMaxEntries) throw error_at(d.place, fmt::format("field '{}' has too many entries", d.name));
    if (field.level == Level::tile && f.tile_rows == 0) {
      throw error_at(d.place, fmt::format("field '{}' belongs to tiles, but the format has none", d.name),
                     "add the attribute 'tile 128 128'");
    }
    const auto level = static_cast<size_t>(field.level);
    read_layout(context, d, field, running[level]);
    mark_places(d, field, used[level]);
    running[level] = (field.layout.end_bit() + 7) / 8 * 8;
    ends[level] = std::max(ends[level], running[level]);
    f.fields.push_back(std::move(field));
  }
  if (ends[0] == 0) throw error_at(declaration.place, "a format needs at least one field of its blocks");
  f.block_bytes = ends[0] / 8;
  f.row_bytes = ends[1] / 8;
  f.tile_bytes = ends[2] / 8;
  f.tensor_bytes = ends[3] / 8;
  find_code_field(context, declaration);
}

}  // namespace lumen::read
