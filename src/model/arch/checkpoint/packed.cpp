#include "model/arch/checkpoint/packed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/embedded.h"
#include "base/error.h"
#include "base/structured/json.h"
#include "base/structured/toml.h"
#include "model/file/sections.h"

namespace lumen::model {
namespace {

using nlohmann::json;

const Toml& schemes() {
  static const Toml all = [] {
    for (const embedded::File& file : embedded::models())
      if (file.path == "models/checkpoints.toml")
        return Toml::parse(std::string(file.text), "<embedded checkpoints.toml>");
    LUMEN_UNREACHABLE("checkpoints.toml is not embedded");
  }();
  return all;
}

// "a.*.b" through objects; * is the one member. Null when there is none.
const json* find(const json& object, const std::string& path) {
  if (path.empty()) return &object;
  if (!object.is_object()) return nullptr;
  const size_t dot = path.find('.');
  const std::string first = path.substr(0, dot), rest = dot == std::string::npos ? "" : path.substr(dot + 1);
  if (first == "*") return object.size() == 1 ? find(*object.begin(), rest) : nullptr;
  const auto at = object.find(first);
  return at == object.end() || at->is_null() ? nullptr : find(*at, rest);
}

std::string word(const json* value) {
  if (!value) return "";
  return value->is_string() ? value->get<std::string>() : value->dump(-1, ' ', false, json::error_handler_t::replace);
}

bool holds_condition(const json& config, const std::string& condition) {
  const size_t at = condition.find('=');
  LUMEN_CHECK(at != std::string::npos && at > 0, "condition '{}'", condition);
  const bool unequal = condition[at - 1] == '!';
  return (word(find(config, condition.substr(0, unequal ? at - 1 : at))) == condition.substr(at + 1)) != unequal;
}

// What the language calls the elements of a tensor.
std::string element_name(const StoredTensor& t) {
  if (!t.element.format) return std::string(scalar_name(t.element.scalar));
  return t.element.format->name;
}

}  // namespace

std::string PackedCheckpoint::module_of(const std::string& weight) const {
  if (weight_.empty()) return weight;
  return weight.ends_with("." + weight_) ? weight.substr(0, weight.size() - weight_.size()) : "";
}

std::optional<PackedCheckpoint> PackedCheckpoint::of(const json& config, const std::string& file) {
  const json* quantization = find(config, "quantization_config");
  if (!quantization) quantization = find(config, "compression_config");
  if (!quantization) return std::nullopt;
  for (const Toml& s : schemes().tables("scheme")) {
    const auto when = s.texts("when");
    if (!std::all_of(when.begin(), when.end(), [&](const auto& c) { return holds_condition(*quantization, c); }))
      continue;
    PackedCheckpoint out;
    out.file_ = file;
    out.name_ = s.text("name");
    out.format_ = s.text("format");
    out.weight_ = s.text("weight", "weight");
    out.unturned_ = s.boolean("unturned", false);
    out.ignore_ = s.texts("ignore");
    out.trivial_ = s.texts("trivial");
    std::string bits = s.text("bits");
    if (!std::isdigit(static_cast<unsigned char>(bits[0]))) bits = word(find(*quantization, bits));
    const bool is_number =
        !bits.empty() && bits.size() < 3 &&
        std::all_of(bits.begin(), bits.end(), [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
    out.bits_ = is_number ? std::stoll(bits) : 0;
    if (out.bits_ < 1 || out.bits_ > 8)
      throw user_error("{}: quantization_config: weights of '{}' bits are not read", file, bits);
    for (const Toml& f : s.tables("field")) {
      Field field{f.text("field"),     f.text("tensor"),    f.text("packed", ""),
                  f.text("map", ""),   f.text("scale", ""), f.text("offset", ""),
                  f.texts("axes"),     f.integers("order"), {},
                  f.integer("add", 0), f.integer("per", 0)};
      if (const std::string path = f.text("steps", ""); !path.empty()) {
        const json* steps = find(*quantization, path);
        if (!steps || !steps->is_array() || steps->size() != field.axes.size())
          throw user_error("{}: quantization_config: '{}' is no list of {} numbers", file, path, field.axes.size());
        for (const json& n : *steps) {
          if (!n.is_number_integer() || n.get<int64_t>() < 1)
            throw user_error("{}: quantization_config: '{}' holds no block size", file, path);
          field.steps.push_back(n.get<int64_t>());
        }
      }
      out.fields_.push_back(std::move(field));
    }
    return out;
  }
  throw Error(Exit::user,
              fmt::format("{}: weights rounded by '{}' ({}) are in a layout that is not read", file,
                          word(find(*quantization, "quant_method")),
                          word(find(*quantization, find(*quantization, "format") ? "format" : "checkpoint_format"))),
              "the layouts that are read stand in models/checkpoints.toml");
}

bool PackedCheckpoint::holds(const TensorFile& file, const std::string& weight) const {
  const std::string module = module_of(weight);
  return !module.empty() && std::all_of(fields_.begin(), fields_.end(),
                                        [&](const Field& f) { return file.find(module + f.tensor) != nullptr; });
}

int64_t PackedCheckpoint::stored_bytes(const TensorFile& file, const std::string& weight) const {
  const std::string module = module_of(weight);
  int64_t bytes = 0;
  for (const Field& f : fields_) bytes += file.get(module + f.tensor).data.size();
  return bytes;
}

// Entries of one field's tensor by row and column of the weight.
class PackedCheckpoint::Reader {
 public:
  Reader(const PackedCheckpoint& p, const Field& f, const TensorFile& file, const std::string& module, int64_t rows,
         int64_t columns)
      : f_(f), t_(file.get(module + f.tensor)), where_(p.file_ + ": tensor '" + t_.name + "'") {
    const bool flat = f.axes[0] == "flat";
    if (t_.element.format && t_.element.format->block_bytes != t_.element.format->block)
      throw wrong("has a type that is not expected here");
    word_bits_ =
        t_.element.format ? 8 * static_cast<int>(t_.element.format->block_bytes) : 8 * scalar_bytes(t_.element.scalar);
    bits_ = f.packed.empty() ? word_bits_ : static_cast<int>(p.bits_);
    std::vector<int64_t> shape = t_.shape;
    if (shape.size() == 1 && f.axes.size() == 2)
      shape = shape[0] == 1 ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{shape[0], 1};
    if (shape.empty()) shape.assign(f.axes.size(), 1);
    if (flat) shape = {t_.rows() * t_.columns()};
    if (shape.size() != f.axes.size())
      throw wrong(fmt::format("has {} axes instead of {}", shape.size(), f.axes.size()));
    fold(shape);
    for (size_t a = 0; a < shape.size(); ++a) {
      Axis axis;
      axis.words = shape[a];
      const int64_t whole = names_[a] == "out" ? rows : names_[a] == "in" ? columns : rows * columns;
      axis.packed = names_[a] == f.packed;
      int64_t entries = axis.words;
      if (axis.packed) {
        if (axis.words > INT64_MAX / word_bits_) throw wrong("is too large");
        entries = axis.words * word_bits_ / bits_;
      }
      if (entries < 1) throw wrong("is empty");
      // Words may have room for a few more entries than there are.
      const int64_t spare = axis.packed ? 32 : 0;
      if (!f.steps.empty()) {
        axis.step = f.steps[a];
        if (entries != (whole + axis.step - 1) / axis.step) throw wrong(fmt::format("has {} entries", entries));
      } else if (entries >= whole) {
        axis.step = 1;
        if (entries - whole > spare) throw wrong(fmt::format("has {} entries for {}", entries, whole));
      } else {
        axis.step = (whole + entries - 1) / entries;
        const int64_t needed = (whole + axis.step - 1) / axis.step;
        if (whole % axis.step != 0 || entries < needed || entries - needed > spare)
          throw wrong(fmt::format("has {} entries for {}, which is no whole number for each", entries, whole));
      }
      axes_.push_back(axis);
    }
    if (std::ssize(t_.data) * 8 < t_.rows() * t_.columns() * word_bits_) throw wrong("is too short");
    const int64_t per_word = std::max(word_bits_ / bits_, 1);
    if (!f.order.empty() && std::ssize(f.order) > per_word) throw wrong("has too short words");
    columns_ = columns;
    if (!f.map.empty()) read_nested(file, module);
  }

  int bits() const { return f_.map.empty() ? bits_ : 32; }
  Error unfit() const { return wrong("does not have an entry for what each is needed for"); }
  bool is_each_weight() const {
    return std::all_of(axes_.begin(), axes_.end(), [](const Axis& a) { return a.step == 1; }) &&
           (axes_.size() == 2 || f_.axes[0] == "flat");
  }
  // Whether one entry is for all columns of a row, or for the whole weight.
  bool is_for_rows() const { return columns_of_entry() >= columns_ && f_.axes[0] != "flat"; }
  bool is_for_all() const {
    return std::all_of(axes_.begin(), axes_.end(), [](const Axis& a) { return a.words == 1 && !a.packed; });
  }
  // Columns under one entry.
  int64_t columns_of_entry() const {
    for (size_t a = 0; a < axes_.size(); ++a)
      if (names_[a] != "out") return axes_[a].step;
    return columns_;
  }

  // Whether a row's entries lie one behind the other, none across two bytes.
  bool is_straight() const {
    return axes_.size() == 2 && axes_[1].packed && names_[1] == "in" && is_each_weight() && f_.order.empty() &&
           f_.add == 0 && f_.map.empty() && 8 % bits_ == 0;
  }
  // The entry of a straight row.
  uint8_t straight_entry(int64_t row, int64_t column) const {
    const int64_t bit = row * axes_[1].words * word_bits_ + column * bits_;
    return t_.data[bit >> 3] >> (bit & 7) & ((1 << bits_) - 1);
  }

  uint64_t entry(int64_t row, int64_t column) const {
    std::array<int64_t, 2> at{};
    for (size_t a = 0; a < axes_.size(); ++a)
      at[a] = (names_[a] == "out" ? row : names_[a] == "in" ? column : row * columns_ + column) / axes_[a].step;
    if (f_.packed.empty()) {
      const int64_t index = axes_.size() == 1 ? at[0] : at[0] * axes_[1].words + at[1];
      const uint64_t raw = read_bits(index * word_bits_, word_bits_);
      return f_.map.empty() ? raw : nested(raw, index);
    }
    // The packed axis is a line of words, the first of which is `first`; the next are `stride` words apart.
    const size_t line = axes_[0].packed ? 0 : 1;
    const int64_t stride = line + 1 == axes_.size() ? 1 : axes_[1].words;
    const int64_t first = axes_.size() == 1 ? 0 : line == 1 ? at[0] * axes_[1].words : at[1];
    int64_t place = at[line];
    if (!f_.order.empty()) {
      const auto group = std::ssize(f_.order);
      place = place / group * group + f_.order[place % group];
    }
    const auto bit_at = [&](int64_t bit) {
      return (first + bit / word_bits_ * stride) * word_bits_ + bit % word_bits_;
    };
    uint64_t value = 0;
    if (word_bits_ % bits_ == 0) {
      value = read_bits(bit_at(place * bits_), bits_);
    } else {  // entries may begin in one word and end in the next
      for (int b = 0; b < bits_; ++b) value |= read_bits(bit_at(place * bits_ + b), 1) << b;
    }
    return (value + f_.add) & ((uint64_t{1} << bits_) - 1);
  }

 private:
  struct Axis {
    int64_t words = 1, step = 1;
    bool packed = false;
  };

  // Neighbouring axes of one kind become one.
  void fold(std::vector<int64_t>& shape) {
    std::vector<int64_t> folded;
    for (size_t a = 0; a < shape.size(); ++a) {
      if (a > 0 && f_.axes[a] == f_.axes[a - 1]) {
        folded.back() *= shape[a];
      } else {
        folded.push_back(shape[a]);
        names_.push_back(f_.axes[a]);
      }
    }
    LUMEN_CHECK(folded.size() == 1 || folded.size() == 2);
    shape = std::move(folded);
  }

  Error wrong(const std::string& what) const {
    return Error(Exit::user, fmt::format("{}: {}", where_, what), "the tensors and quantization_config disagree");
  }

  uint64_t read_bits(int64_t bit, int count) const {
    uint64_t out = 0;
    const auto byte = static_cast<size_t>(bit / 8);
    LUMEN_CHECK(byte + (bit % 8 + count + 7) / 8 <= t_.data.size());
    const size_t bytes = std::min<size_t>(8, t_.data.size() - byte);
    std::memcpy(&out, t_.data.data() + byte, bytes);
    out >>= bit % 8;
    return count == 64 ? out : out & ((uint64_t{1} << count) - 1);
  }

  static std::vector<float> floats(const StoredTensor& t) {
    if (t.element.format ? !is_plain(*t.element.format, Scalar::f32) : t.element.scalar != Scalar::f32)
      throw user_error("tensor '{}' does not hold f32", t.name);
    std::vector<float> out(t.data.size() / 4);
    std::memcpy(out.data(), t.data.data(), out.size() * 4);
    return out;
  }

  void read_nested(const TensorFile& file, const std::string& module) {
    map_ = floats(file.get(module + f_.map));
    scale_ = floats(file.get(module + f_.scale));
    if (map_.size() < (size_t{1} << std::min(word_bits_, 16))) throw wrong("has codes without a value");
    const int64_t count = t_.rows() * t_.columns();
    if (std::ssize(scale_) < (count + f_.per - 1) / f_.per) throw wrong("has too few scales");
    const size_t colon = f_.offset.find(':');
    const std::string prefix = module + f_.offset.substr(0, std::min(f_.offset.find('*'), colon));
    for (const StoredTensor& t : file.tensors()) {
      if (!t.name.starts_with(prefix)) continue;
      const std::string text(reinterpret_cast<const char*>(t.data.data()), t.data.size());
      const json state = parse_json(text, t.name);
      const json* offset = find(state, f_.offset.substr(colon + 1));
      if (!offset || !offset->is_number()) throw wrong("has no offset in " + t.name);
      offset_ = offset->get<float>();
      return;
    }
    throw wrong("has no " + prefix);
  }

  uint64_t nested(int64_t code, int64_t index) const {
    const float value = map_[code] * scale_[index / f_.per] + offset_;
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
  }

  const Field& f_;
  const StoredTensor& t_;
  std::string where_;
  int word_bits_ = 32, bits_ = 32;
  int64_t columns_ = 1;
  std::vector<Axis> axes_;
  std::vector<std::string> names_;  // of the axes
  std::vector<float> map_, scale_;
  float offset_ = 0;
};

namespace {

std::string filled(std::string text, const std::string& name, const std::string& value) {
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + value.size()))
    text.replace(at, name.size(), value);
  return text;
}

// {TENSOR} in a text: the type of its elements, or in a table its values.
std::string with_tensors(std::string text, const TensorFile& file, const std::string& module) {
  for (size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
    const size_t end = text.find('}', at);
    if (end == std::string::npos) break;
    const StoredTensor* t = file.find(module + text.substr(at + 1, end - at - 1));
    if (!t) continue;
    std::string value = element_name(*t);
    if (!t->element.format && !is_float(t->element.scalar))
      throw user_error("tensor '{}' holds {}, where floats are expected", t->name, value);
    if (text.rfind('=', at) != std::string::npos && at > 1 && text[at - 2] == '=') {
      if (t->data.size() != 64) throw user_error("tensor '{}' is no table of 16 f32", t->name);
      value = "[";
      for (size_t i = 0; i < 16; ++i) {
        float x = 0;
        std::memcpy(&x, t->data.data() + i * 4, 4);
        if (!std::isfinite(x)) throw user_error("tensor '{}' holds {}", t->name, x);
        const std::string digits = fmt::format("{}", x);
        value += (i ? ", " : "") + digits + (digits.find_first_of(".e") == std::string::npos ? ".0" : "");
      }
      value += "]";
    }
    text.replace(at, end - at + 1, value);
  }
  return text;
}

}  // namespace

namespace {

// The bit of a record at which each entry of a field begins, where none lies across two bytes; empty otherwise.
std::vector<int64_t> places_in_bytes(const lumen::Field& field) {
  std::vector<int64_t> out(field.count, -1);
  for (const LayoutPiece& piece : field.layout.pieces) {
    if (piece.value_bit != 0 || piece.bits != field.type.bits || piece.bits > 8) return {};
    for (int64_t i = piece.first; i < piece.first + piece.count; ++i) {
      const int64_t bit = piece.bit_of(i);
      if (bit % 8 + piece.bits > 8) return {};
      out[i] = bit;
    }
  }
  return out;
}

// Writes a field's entries into its section of a blob. `each`: an entry for each weight, not for a block.
template <typename Reader>
void fill_section(const lumen::Field& field, const Format& f, const BlobLayout& layout, const Reader& reader, bool each,
                  int64_t rows, int64_t columns, uint8_t* blob) {
  uint8_t* section = blob + layout.section[static_cast<int>(field.level)];
  switch (field.level) {
    case Level::block: {
      const int64_t blocks = columns / f.block;
      if (const std::vector<int64_t> places = places_in_bytes(field); each && !places.empty() && reader.is_straight()) {
#pragma omp parallel for
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t b = 0; b < blocks; ++b) {
            uint8_t* record = section + r * layout.row_stride + b * f.block_bytes;
            for (int64_t e = 0; e < field.count; ++e) {
              const int64_t place = places[static_cast<size_t>(e)];
              record[place >> 3] |= static_cast<uint8_t>(reader.straight_entry(r, b * f.block + e) << (place & 7));
            }
          }
        }
        break;
      }
#pragma omp parallel for
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t b = 0; b < blocks; ++b) {
          uint8_t* record = section + r * layout.row_stride + b * f.block_bytes;
          for (int64_t e = 0; e < field.count; ++e) field.layout.write(record, e, reader.entry(r, b * f.block + e));
        }
      }
      break;
    }
    case Level::row:
      for (int64_t r = 0; r < rows; ++r) field.layout.write(section + r * f.row_bytes, 0, reader.entry(r, 0));
      break;
    case Level::tile:
      for (int64_t r = 0; r < rows; r += f.tile_rows)
        for (int64_t c = 0; c < columns; c += f.tile_columns)
          field.layout.write(section + (r / f.tile_rows * layout.tile_columns + c / f.tile_columns) * f.tile_bytes, 0,
                             reader.entry(r, c));
      break;
    case Level::tensor:
      field.layout.write(section, 0, reader.entry(0, 0));
      break;
  }
}

}  // namespace

Weight PackedCheckpoint::read(const TensorFile& file, const std::string& weight, const graph::Shape& shape,
                              const FormatLibrary& formats, std::set<std::string>& used) const {
  const std::string module = module_of(weight);
  Weight w;
  w.type.shape = shape;
  const int64_t rows = w.rows(), columns = w.columns();
  std::vector<Reader> readers;
  for (const Field& f : fields_) {
    readers.emplace_back(*this, f, file, module, rows, columns);
    used.insert(module + f.tensor);
  }
  // Columns under one scale: the fewest that any field has beyond single ones.
  int64_t group = columns;
  for (const Reader& r : readers)
    if (r.columns_of_entry() > 1) group = std::min(group, r.columns_of_entry());
  for (const StoredTensor& t : file.tensors()) {
    if (!t.name.starts_with(module)) continue;
    const std::string rest = t.name.substr(module.size());
    if (rest == "weight.quant_map") used.insert(t.name);
    for (const std::string& name : ignore_)
      if (name == rest || (name.ends_with("*") && rest.starts_with(name.substr(0, name.size() - 1))))
        used.insert(t.name);
    if (std::find(trivial_.begin(), trivial_.end(), rest) == trivial_.end()) continue;
    used.insert(t.name);
    if (t.rows() * t.columns() != columns || t.element.scalar != Scalar::i32 || t.element.format)
      throw user_error("{}: tensor '{}' does not fit the weight", file_, t.name);
    for (int64_t k = 0; k < columns; ++k) {
      int32_t at = 0;
      std::memcpy(&at, t.data.data() + k * 4, 4);
      if (at != k / group)
        throw Error(Exit::user,
                    fmt::format("{}: tensor '{}': columns are not in the order of their groups", file_, t.name),
                    "checkpoints made with activation order (desc_act) are not read");
    }
  }
  std::string text = filled(filled(format_, "{bits}", std::to_string(bits_)), "{group}", std::to_string(group));
  text = with_tensors(std::move(text), file, module);
  if (const size_t begin = text.find("format "); begin == std::string::npos) {
    w.type.element = {Scalar::f32, formats.get(text)};
  } else {
    const std::string name = text.substr(begin + 7, text.find_first_of(" :", begin + 7) - begin - 7);
    w.type.element = {Scalar::f32, FormatsOfFile(formats, file_).get(name, text)};
  }
  const Format& f = *w.type.element.format;
  if (columns % f.block != 0)
    throw user_error("{}: '{}' has {} columns, no multiple of {}", file_, weight, columns, f.block);
  const BlobLayout layout = blob_layout(f, rows, columns);
  Room blob(layout.total);
  for (size_t i = 0; i < fields_.size(); ++i) {
    const auto field =
        std::find_if(f.fields.begin(), f.fields.end(), [&](const auto& x) { return x.name == fields_[i].field; });
    LUMEN_CHECK(field != f.fields.end(), "format {} has no field {}", f.name, fields_[i].field);
    const Reader& reader = readers[i];
    const bool each = field->count > 1 || f.block == 1;
    const std::vector<int64_t> tile = {f.tile_rows, f.tile_columns};
    // An entry that is for less than its field would be read at one place and hold at others.
    const bool fits = field->level == Level::row      ? reader.is_for_rows()
                      : field->level == Level::tensor ? reader.is_for_all()
                      : field->level == Level::tile   ? fields_[i].steps == tile
                      : each                          ? reader.is_each_weight()
                                                      : reader.columns_of_entry() % f.block == 0;
    if (!fits) throw reader.unfit();
    if (field->type.bits != reader.bits())
      throw user_error("{}: tensor '{}' has entries of {} bits instead of {}", file_, module + fields_[i].tensor,
                       reader.bits(), field->type.bits);
    fill_section(*field, f, layout, reader, each, rows, columns, blob.data());
  }
  w.bytes = std::move(blob).bytes();
  return w;
}

}  // namespace lumen::model
