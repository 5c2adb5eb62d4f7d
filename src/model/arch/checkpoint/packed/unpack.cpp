#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/structured/json.h"
#include "base/threads/team.h"
#include "model/arch/checkpoint/packed/packed.h"
#include "model/arch/checkpoint/packed/places.h"

namespace lumen::model::arch {
namespace {

using nlohmann::json;

// The language's name of a tensor's element type.
std::string element_name(const file::StoredTensor& t) {
  if (!t.element.format) return std::string(scalar_name(t.element.scalar));
  return t.element.format->name;
}

}  // namespace

namespace {

// The prefix before a weight's own name; "" when the scheme's modules have no such weight.
std::string module_of(const Scheme& scheme, const std::string& weight) {
  const std::string& end = scheme.weight;
  if (end.empty()) return weight;
  return weight.ends_with("." + end) ? weight.substr(0, weight.size() - end.size()) : "";
}

// The tensor of a field, under either of its names; null when it is missing.
const file::StoredTensor* tensor_of(const Scheme::Field& f, const file::TensorFile& file, const std::string& module) {
  const file::StoredTensor* t = file.find(module + f.tensor);
  return t || f.also.empty() ? t : file.find(module + f.also);
}

int64_t bits_of(const Scheme& s, const json& config, const std::string& file) {
  std::string bits = s.bits;
  if (!std::isdigit(static_cast<unsigned char>(bits[0]))) bits = word_of(find_in(config, bits));
  const bool is_number =
      !bits.empty() && bits.size() < 3 &&
      std::all_of(bits.begin(), bits.end(), [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
  const int64_t out = is_number ? std::stoll(bits) : 0;
  if (out < 1 || out > 8)
    throw user_error("{}: quantization_config: weights of '{}' bits are not supported", file, bits);
  return out;
}

std::vector<int64_t> steps_of(const Scheme::Field& f, const json& config, const std::string& file) {
  if (f.steps.empty()) return {};
  const json* steps = find_in(config, f.steps);
  if (!steps || !steps->is_array() || steps->size() != f.axes.size())
    throw user_error("{}: quantization_config: '{}' is not a list of {} numbers", file, f.steps, f.axes.size());
  std::vector<int64_t> sizes;
  for (const json& n : *steps) {
    if (!n.is_number_integer() || n.get<int64_t>() < 1)
      throw user_error("{}: quantization_config: '{}' holds a number that is not a block size", file, f.steps);
    sizes.push_back(n.get<int64_t>());
  }
  return sizes;
}

}  // namespace

PackedCheckpoint::Part PackedCheckpoint::part_of(const PackingMethod& method, ModuleGroup group,
                                                 const std::string& file) {
  const json& config = group.config;
  const auto scheme = std::ranges::find_if(schemes(), [&](const Scheme& s) { return describes(s, config); });
  if (scheme == schemes().end())
    throw Error(Exit::user,
                fmt::format("{}: weights quantized by '{}' ({}) have a layout that is not supported", file,
                            word_of(find_in(config, "quant_method")),
                            word_of(find_in(config, find_in(config, "format") ? "format" : "checkpoint_format"))),
                "models/checkpoints.toml lists the supported layouts");
  Part out;
  out.scheme = &*scheme;
  out.bits = bits_of(*scheme, config, file);
  for (const Scheme::Field& f : scheme->fields) out.steps.push_back(steps_of(f, config, file));
  out.activation = held_rule(activation_rules(), config, method.activations, file);
  if (out.activation && scheme->fields.empty())
    throw user_error("{}: quantization_config: \"{}\" applies to modules whose weights are floats", file,
                     method.activations);
  out.group = std::move(group);
  return out;
}

std::optional<PackedCheckpoint> PackedCheckpoint::of(const json& config, const std::string& file) {
  const json* quantization = find_in(config, "quantization_config");
  if (!quantization) quantization = find_in(config, "compression_config");
  if (!quantization) return std::nullopt;
  const PackingMethod& method = method_of(*quantization, file);
  check_keys(method, *quantization, file);
  PackedCheckpoint out;
  out.file_ = file;
  out.config_ = *quantization;
  for (ModuleGroup& group : module_groups(method, *quantization, file))
    out.parts_.push_back(part_of(method, std::move(group), file));
  out.cache_ = held_rule(cache_rules(), *quantization, method.cache, file);
  return out;
}

const PackedCheckpoint::Part* PackedCheckpoint::part_for(const std::string& weight) const {
  if (parts_.size() == 1) return &parts_.front();
  const Part* best = nullptr;
  int most = 0;
  for (const Part& part : parts_) {
    std::string module = module_of(*part.scheme, weight);
    if (module.empty()) continue;
    if (module.ends_with('.')) module.pop_back();
    const int rank = target_rank(part.group, module, file_);
    if (rank <= most) continue;
    best = &part;
    most = rank;
  }
  return best;
}

bool PackedCheckpoint::holds(const file::TensorFile& file, const std::string& weight) const {
  const Part* part = part_for(weight);
  if (!part || part->scheme->fields.empty()) return false;
  const std::string module = module_of(*part->scheme, weight);
  return !module.empty() && std::all_of(part->scheme->fields.begin(), part->scheme->fields.end(),
                                        [&](const Scheme::Field& f) { return tensor_of(f, file, module) != nullptr; });
}

int64_t PackedCheckpoint::stored_bytes(const file::TensorFile& file, const std::string& weight) const {
  const Scheme& scheme = *part_for(weight)->scheme;
  int64_t bytes = 0;
  for (const Scheme::Field& f : scheme.fields) bytes += tensor_of(f, file, module_of(scheme, weight))->data.size();
  return bytes;
}

std::optional<HeldFormat> PackedCheckpoint::input(const file::TensorFile& file, const std::string& weight,
                                                  const FormatLibrary& formats, std::set<std::string>& used) const {
  const Part* part = part_for(weight);
  if (!part || !part->activation) return std::nullopt;
  const HeldRule& rule = *part->activation;
  return read_held(rule, part->group.config, file, module_of(*part->scheme, weight), rule.scale, formats, file_, used);
}

HeldFormat PackedCheckpoint::keys(const file::TensorFile& file, const std::string& attention,
                                  const FormatLibrary& formats, std::set<std::string>& used) const {
  return read_held(*cache_, config_, file, attention, cache_->scale, formats, file_, used);
}

HeldFormat PackedCheckpoint::values(const file::TensorFile& file, const std::string& attention,
                                    const FormatLibrary& formats, std::set<std::string>& used) const {
  return read_held(*cache_, config_, file, attention, cache_->values, formats, file_, used);
}

// Reads entries of one field's tensor by row and column of the weight.
class PackedCheckpoint::Reader {
 public:
  Reader(const Part& p, const std::string& config, size_t field, const file::TensorFile& file,
         const std::string& module, int64_t rows, int64_t columns)
      : f_(p.scheme->fields[field]), t_(*tensor_of(f_, file, module)), where_(config + ": tensor '" + t_.name + "'") {
    if (t_.element.format && t_.element.format->block_bytes != t_.element.format->block)
      throw wrong("has an unexpected type");
    const int word_bits = 8 * (t_.element.format ? t_.element.format->block_bytes : scalar_bytes(t_.element.scalar));
    const int bits = f_.packed.empty() ? word_bits : p.bits;
    std::vector<int64_t> shape = t_.shape;
    if (shape.size() == 1 && f_.axes.size() == 2)
      shape = shape[0] == 1 ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{shape[0], 1};
    if (shape.empty()) shape.assign(f_.axes.size(), 1);
    if (f_.axes[0] == "flat") shape = {t_.rows() * t_.columns()};
    if (shape.size() != f_.axes.size())
      throw wrong(fmt::format("has {} axes instead of {}", shape.size(), f_.axes.size()));
    std::vector<Places::Axis> axes = folded(shape);
    for (size_t a = 0; a < axes.size(); ++a) {
      Places::Axis& axis = axes[a];
      const int64_t whole = axis.name == "out" ? rows : axis.name == "in" ? columns : rows * columns;
      axis.packed = axis.name == f_.packed;
      int64_t entries = axis.words;
      if (axis.packed) {
        if (axis.words > INT64_MAX / word_bits) throw wrong("is too large");
        entries = axis.words * word_bits / bits;
      }
      if (entries < 1) throw wrong("is empty");
      // Words may have room for a few more entries than exist.
      const int64_t spare = axis.packed ? 32 : 0;
      if (!p.steps[field].empty()) {
        axis.step = p.steps[field][a];
        if (entries != (whole + axis.step - 1) / axis.step) throw wrong(fmt::format("has {} entries", entries));
      } else if (entries >= whole) {
        axis.step = 1;
        if (entries - whole > spare) throw wrong(fmt::format("has {} entries for {}", entries, whole));
      } else {
        axis.step = (whole + entries - 1) / entries;
        const int64_t needed = (whole + axis.step - 1) / axis.step;
        if (whole % axis.step != 0 || entries < needed || entries - needed > spare)
          throw wrong(fmt::format("has {} entries for {}, which is not a whole number for each", entries, whole));
      }
    }
    if (std::ssize(t_.data) * 8 < t_.rows() * t_.columns() * word_bits) throw wrong("is too short");
    if (!f_.order.empty() && std::ssize(f_.order) > std::max(word_bits / bits, 1)) throw wrong("has too short words");
    if (f_.times != 0 &&
        !(t_.element.format ? is_plain(*t_.element.format, Scalar::f32) : t_.element.scalar == Scalar::f32))
      throw wrong("does not hold f32");
    columns_ = columns;
    places_ = Places(f_, std::move(axes), word_bits, bits, columns);
    if (!f_.map.empty()) read_nested(file, module);
  }

  int bits() const { return f_.map.empty() ? places_.bits() : 32; }
  Error unfit() const { return wrong("does not have entries of the needed granularity"); }
  bool is_each_weight() const {
    return std::all_of(axes().begin(), axes().end(), [](const Places::Axis& a) { return a.step == 1; }) &&
           (axes().size() == 2 || places_.is_flat());
  }
  // Whether one entry applies to all columns of a row, or to the whole weight.
  bool is_for_rows() const { return columns_of_entry() >= columns_ && !places_.is_flat(); }
  bool is_for_all() const {
    return std::all_of(axes().begin(), axes().end(), [](const Places::Axis& a) { return a.words == 1 && !a.packed; });
  }
  // Columns per entry.
  int64_t columns_of_entry() const {
    for (const Places::Axis& a : axes())
      if (a.name != "out") return a.step;
    return columns_;
  }

  // Whether a row's entries are contiguous, and none crosses a byte boundary.
  bool is_straight() const {
    return axes().size() == 2 && axes()[1].packed && axes()[1].name == "in" && is_each_weight() && f_.order.empty() &&
           f_.add == 0 && f_.map.empty() && 8 % places_.bits() == 0;
  }
  // The entry of a straight row.
  uint8_t straight_entry(int64_t row, int64_t column) const {
    const int64_t bit = row * axes()[1].words * places_.word_bits() + column * places_.bits();
    return t_.data[bit >> 3] >> (bit & 7) & ((1 << places_.bits()) - 1);
  }

  uint64_t entry(int64_t row, int64_t column) const {
    uint64_t value = 0;
    places_.parts(row, column,
                  [&](int64_t bit, int count, int value_bit) { value |= read_bits(bit, count) << value_bit; });
    if (!f_.map.empty()) return nested(value, places_.index(row, column));
    if (f_.times != 0) return divided(value);
    if (f_.packed.empty()) return value;
    if (f_.add != 0 && places_.word_bits() % places_.bits() == 0) return added_in_word(row, column);
    return (value + f_.add) & ((uint64_t{1} << places_.bits()) - 1);
  }

 private:
  const std::vector<Places::Axis>& axes() const { return places_.axes(); }

  // The addend is added to whole words: an entry that overflows carries into the next.
  uint64_t added_in_word(int64_t row, int64_t column) const {
    int64_t at = 0;
    places_.parts(row, column, [&](int64_t bit, int, int) { at = bit; });
    const int shift = at % places_.word_bits();
    const uint64_t add = f_.add;
    uint64_t word = read_bits(at - shift, shift + places_.bits());
    for (int bit = 0; bit <= shift; bit += places_.bits()) word += add << bit;
    return word >> shift & ((uint64_t{1} << places_.bits()) - 1);
  }

  // Merges adjacent axes of equal name.
  std::vector<Places::Axis> folded(const std::vector<int64_t>& shape) const {
    std::vector<Places::Axis> out;
    for (size_t a = 0; a < shape.size(); ++a) {
      if (a > 0 && f_.axes[a] == f_.axes[a - 1])
        out.back().words *= shape[a];
      else
        out.push_back({f_.axes[a], shape[a]});
    }
    LUMEN_CHECK(out.size() == 1 || out.size() == 2);
    return out;
  }

  Error wrong(const std::string& what) const {
    return Error(Exit::user, fmt::format("{}: {}", where_, what), "the tensors and quantization_config disagree");
  }

  uint64_t read_bits(int64_t bit, int count) const {
    uint64_t out = 0;
    const size_t byte = bit / 8;
    LUMEN_CHECK(byte + (bit % 8 + count + 7) / 8 <= t_.data.size());
    const size_t bytes = std::min<size_t>(8, t_.data.size() - byte);
    std::memcpy(&out, t_.data.data() + byte, bytes);
    out >>= bit % 8;
    return count == 64 ? out : out & ((uint64_t{1} << count) - 1);
  }

  static std::vector<float> floats(const file::StoredTensor& t) {
    if (t.element.format ? !is_plain(*t.element.format, Scalar::f32) : t.element.scalar != Scalar::f32)
      throw user_error("tensor '{}' does not hold f32", t.name);
    std::vector<float> out(t.data.size() / 4);
    std::memcpy(out.data(), t.data.data(), out.size() * 4);
    return out;
  }

  void read_nested(const file::TensorFile& file, const std::string& module) {
    map_ = floats(file.get(module + f_.map));
    scale_ = floats(file.get(module + f_.scale));
    if (map_.size() < (size_t{1} << std::min(places_.word_bits(), 16))) throw wrong("has codes without a value");
    const int64_t count = t_.rows() * t_.columns();
    if (std::ssize(scale_) < (count + f_.per - 1) / f_.per) throw wrong("has too few scales");
    const size_t colon = f_.offset.find(':');
    const std::string prefix = module + f_.offset.substr(0, std::min(f_.offset.find('*'), colon));
    for (const file::StoredTensor& t : file.tensors()) {
      if (!t.name.starts_with(prefix)) continue;
      const std::string text(reinterpret_cast<const char*>(t.data.data()), t.data.size());
      const json state = parse_json(text, t.name);
      const json* offset = find_in(state, f_.offset.substr(colon + 1));
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

  // The stored value is a multiple.
  uint64_t divided(uint64_t code) const {
    const uint32_t stored = code;
    float value = 0;
    std::memcpy(&value, &stored, sizeof value);
    value = value / static_cast<float>(f_.times);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
  }

  const Scheme::Field& f_;
  const file::StoredTensor& t_;
  std::string where_;
  Places places_;
  int64_t columns_ = 1;
  std::vector<float> map_, scale_;
  float offset_ = 0;
};

namespace {

// Replaces {TENSOR} in a text: by the type of its elements, or in a table by its values.
std::string with_tensors(std::string text, const file::TensorFile& file, const std::string& module) {
  for (size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
    const size_t end = text.find('}', at);
    if (end == std::string::npos) break;
    const file::StoredTensor* t = file.find(module + text.substr(at + 1, end - at - 1));
    if (!t) continue;
    std::string value = element_name(*t);
    if (!t->element.format && !is_float(t->element.scalar))
      throw user_error("tensor '{}' holds {}, where floats are expected", t->name, value);
    if (text.rfind('=', at) != std::string::npos && at > 1 && text[at - 2] == '=') {
      if (t->data.size() != 64) throw user_error("tensor '{}' is not a table of 16 f32", t->name);
      std::array<float, 16> values{};
      std::memcpy(values.data(), t->data.data(), sizeof values);
      for (const float x : values)
        if (!std::isfinite(x)) throw user_error("tensor '{}' holds {}", t->name, x);
      value = table_text(values);
    }
    text.replace(at, end - at + 1, value);
  }
  return text;
}

}  // namespace

namespace {

// The bit offset of each entry of a field in a record, if no entry crosses a byte boundary; empty otherwise.
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

// Writes a field's entries into its section of a blob. `each`: an entry per weight, not per block.
template <typename Reader>
void fill_section(const lumen::Field& field, const Format& f, const BlobLayout& layout, const Reader& reader, bool each,
                  int64_t rows, int64_t columns, uint8_t* blob) {
  uint8_t* section = blob + layout.section[static_cast<int>(field.level)];
  switch (field.level) {
    case Level::block: {
      const int64_t blocks = columns / f.block;
      if (const std::vector<int64_t> places = places_in_bytes(field); each && !places.empty() && reader.is_straight()) {
        parallel_for(0, rows, [&](int64_t r) {
          for (int64_t b = 0; b < blocks; ++b) {
            uint8_t* record = section + r * layout.row_stride + b * f.block_bytes;
            for (int64_t e = 0; e < field.count; ++e) {
              const int64_t place = places[e];
              record[place >> 3] |= reader.straight_entry(r, b * f.block + e) << (place & 7);
            }
          }
        });
        break;
      }
      parallel_for(0, rows, [&](int64_t r) {
        for (int64_t b = 0; b < blocks; ++b) {
          uint8_t* record = section + r * layout.row_stride + b * f.block_bytes;
          for (int64_t e = 0; e < field.count; ++e) field.layout.write(record, e, reader.entry(r, b * f.block + e));
        }
      });
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

graph::Type PackedCheckpoint::type(const file::TensorFile& file, const std::string& weight, const graph::Shape& shape,
                                   const FormatLibrary& formats, std::set<std::string>& used) const {
  std::vector<Reader> readers;
  return open(file, weight, shape, formats, used, readers);
}

graph::Type PackedCheckpoint::open(const file::TensorFile& file, const std::string& weight, const graph::Shape& shape,
                                   const FormatLibrary& formats, std::set<std::string>& used,
                                   std::vector<Reader>& readers) const {
  const Part& part = *part_for(weight);
  const std::string module = module_of(*part.scheme, weight);
  Weight w;
  w.type.shape = shape;
  const int64_t rows = w.rows(), columns = w.columns();
  const std::vector<Scheme::Field>& fields = part.scheme->fields;
  for (size_t i = 0; i < fields.size(); ++i) {
    readers.emplace_back(part, file_, i, file, module, rows, columns);
    used.insert(tensor_of(fields[i], file, module)->name);
  }
  // Columns per scale: the fewest per entry of any field with more than one.
  int64_t group = columns;
  for (const Reader& r : readers)
    if (r.columns_of_entry() > 1) group = std::min(group, r.columns_of_entry());
  for (const file::StoredTensor& t : file.tensors()) {
    if (!t.name.starts_with(module)) continue;
    const std::string rest = t.name.substr(module.size());
    if (rest == "weight.quant_map") used.insert(t.name);
    for (const std::string& name : part.scheme->ignore)
      if (name == rest || (name.ends_with("*") && rest.starts_with(name.substr(0, name.size() - 1))))
        used.insert(t.name);
    if (std::ranges::find(part.scheme->trivial, rest) == part.scheme->trivial.end()) continue;
    used.insert(t.name);
    if (t.rows() * t.columns() != columns || t.element.scalar != Scalar::i32 || t.element.format)
      throw user_error("{}: tensor '{}' does not fit the weight", file_, t.name);
    for (int64_t k = 0; k < columns; ++k) {
      int32_t at = 0;
      std::memcpy(&at, t.data.data() + k * 4, 4);
      if (at != k / group)
        throw Error(Exit::user,
                    fmt::format("{}: tensor '{}': columns are not in the order of their groups", file_, t.name),
                    "checkpoints made with activation order (desc_act) are not supported");
    }
  }
  std::string text =
      filled(filled(part.scheme->format, "{bits}", std::to_string(part.bits)), "{group}", std::to_string(group));
  for (const Scheme::Field& f : fields)
    if (!file.find(module + f.tensor)) text = filled(std::move(text), "{" + f.tensor + "}", "{" + f.also + "}");
  text = with_tensors(std::move(text), file, module);
  w.type.element = {Scalar::f32, format_of_scheme(formats, file_, text)};
  const Format& f = *w.type.element.format;
  if (columns % f.block != 0)
    throw user_error("{}: '{}' has {} columns, not a multiple of {}", file_, weight, columns, f.block);
  return w.type;
}

Weight PackedCheckpoint::read(const file::TensorFile& file, const std::string& weight, const graph::Shape& shape,
                              const FormatLibrary& formats, std::set<std::string>& used) const {
  const Part& part = *part_for(weight);
  const std::string module = module_of(*part.scheme, weight);
  const std::vector<Scheme::Field>& fields = part.scheme->fields;
  std::vector<Reader> readers;
  Weight w;
  w.type = open(file, weight, shape, formats, used, readers);
  const int64_t rows = w.rows(), columns = w.columns();
  const Format& f = *w.type.element.format;
  const BlobLayout layout = blob_layout(f, rows, columns);
  Room blob(layout.total);
  for (size_t i = 0; i < fields.size(); ++i) {
    const auto field =
        std::find_if(f.fields.begin(), f.fields.end(), [&](const auto& x) { return x.name == fields[i].field; });
    LUMEN_CHECK(field != f.fields.end(), "format {} has no field {}", f.name, fields[i].field);
    const Reader& reader = readers[i];
    const bool each = field->count > 1 || f.block == 1;
    const std::vector<int64_t> tile = {f.tile_rows, f.tile_columns};
    // An entry with a smaller extent than its field would be read once and applied elsewhere, too.
    const bool fits = field->level == Level::row      ? reader.is_for_rows()
                      : field->level == Level::tensor ? reader.is_for_all()
                      : field->level == Level::tile   ? part.steps[i] == tile
                      : each                          ? reader.is_each_weight()
                                                      : reader.columns_of_entry() % f.block == 0;
    if (!fits) throw reader.unfit();
    if (field->type.bits != reader.bits())
      throw user_error("{}: tensor '{}' has entries of {} bits instead of {}", file_, module + fields[i].tensor,
                       reader.bits(), field->type.bits);
    fill_section(*field, f, layout, reader, each, rows, columns, blob.data());
  }
  w.bytes = std::move(blob).bytes();
  return w;
}

}  // namespace lumen::model::arch
