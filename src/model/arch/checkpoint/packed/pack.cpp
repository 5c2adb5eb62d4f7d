#include "model/arch/checkpoint/packed/pack.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"
#include "base/structured/json.h"
#include "base/threads/team.h"
#include "model/arch/checkpoint/packed/method.h"
#include "model/arch/checkpoint/packed/places.h"
#include "model/arch/checkpoint/packed/same_numbers.h"
#include "number/facts/facts.h"

namespace lumen::model::arch {
namespace {

constexpr int64_t kBand = 64;  // rows of different bands share no byte

// The format that is a single value of this type and has a safetensors dtype.
FormatRef plain_format(const FormatLibrary& formats, const FieldType& type) {
  for (const FormatRef& f : formats.all()) {
    const FieldType* plain = plain_field(*f);
    if (plain && *plain == type && !f->safetensors_type.empty()) return f;
  }
  return nullptr;
}

// The element type of a scheme's tensor: a scalar by its name, or that of the field.
graph::Element element_of(const FormatLibrary& formats, const std::string& type, const FieldType& field) {
  if (const auto scalar = scalar_from_name(type)) return {*scalar, nullptr};
  if (!field.is_float && field.is_signed && field.bits == 8) return {Scalar::i8, nullptr};
  if (FormatRef f = plain_format(formats, field)) return {Scalar::f32, f};
  return {Scalar::u8, nullptr};
}

int bits_of(const graph::Element& e) {
  return 8 * (e.format ? e.format->block_bytes : scalar_bytes(e.scalar));
}

// x with x / times == value in f32; nullopt where there is no such float.
std::optional<float> multiplied(float value, double times) {
  const float t = times;
  const float near = value * t;
  for (float x = near, y = near; std::isfinite(x) && std::abs(x / t - value) <= std::abs(value) * 1e-5F;
       x = std::nextafter(x, INFINITY), y = std::nextafter(y, -INFINITY)) {
    if (x / t == value) return x;
    if (y / t == value) return y;
    if (std::abs(x - near) > std::abs(near) * 1e-6F) break;
  }
  return value == 0 ? std::optional(0.0F) : std::nullopt;
}

void put_bits(uint8_t* to, int64_t bit, int count, uint64_t value) {
  uint8_t* byte = to + (bit >> 3);
  const int shift = bit & 7;
  if (shift == 0 && count % 8 == 0) {
    std::memcpy(byte, &value, count / 8);
    return;
  }
  const int bytes = (shift + count + 7) / 8;
  uint64_t old = 0;
  std::memcpy(&old, byte, bytes);
  old |= (value & ((uint64_t{1} << count) - 1)) << shift;
  std::memcpy(byte, &old, bytes);
}

// Reads entries of a format's fields in a blob.
class Blob {
 public:
  Blob(const Format& f, const Weight& w)
      : f_(f), bytes_(w.bytes.data()), columns_(w.columns()), layout_(blob_layout(f, w.rows(), w.columns())) {}

  uint64_t read(size_t field, int64_t entry, int64_t row, int64_t column) const {
    const Field& f = f_.fields[field];
    return f.layout.read(record(f.level, row, column), entry);
  }

 private:
  const uint8_t* record(Level level, int64_t row, int64_t column) const {
    const uint8_t* section = bytes_ + layout_.section[ordinal(level)];
    switch (level) {
      case Level::block:
        return section + row * layout_.row_stride + column / f_.block * f_.block_bytes;
      case Level::row:
        return section + row * f_.row_bytes;
      case Level::tile:
        return section + (row / f_.tile_rows * layout_.tile_columns + column / f_.tile_columns) * f_.tile_bytes;
      case Level::tensor:
        return section;
    }
    LUMEN_UNREACHABLE();
  }

  const Format& f_;
  const uint8_t* bytes_;
  int64_t columns_;
  BlobLayout layout_;
};

// The bit offset of each code in a record, if no code crosses a byte boundary; empty otherwise.
std::vector<int64_t> places_in_bytes(const Field& field, const std::vector<int64_t>& entries) {
  std::vector<int64_t> by_entry(field.count, -1), out;
  for (const LayoutPiece& piece : field.layout.pieces) {
    if (piece.value_bit != 0 || piece.bits != field.type.bits || piece.bits > 8) return {};
    for (int64_t i = piece.first; i < piece.first + piece.count; ++i) {
      by_entry[i] = piece.bit_of(i);
      if (by_entry[i] % 8 + piece.bits > 8) return {};
    }
  }
  for (const int64_t e : entries) out.push_back(by_entry[e]);
  return out;
}

}  // namespace

// The conversion of one weight to tensors.
struct Packing::Plan {
  const Scheme* scheme = nullptr;
  FormatRef from, to;
  graph::Shape shape;
  SameNumbers same;
  FieldUse from_use;
  std::vector<size_t> field;            // by field of the scheme: index in the format `to`
  std::vector<Places> places;           // by field of the scheme
  std::vector<file::TensorSpec> specs;  // fields, then extras; names without the module
  int64_t group = 0;
  int bits = 0;
  std::vector<std::string> configs;  // possible configs; a group of all columns is a row as well

  int64_t rows() const {
    int64_t out = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) out *= shape[i].number();
    return out;
  }
  int64_t columns() const { return shape.back().number(); }
  bool is_code(size_t i) const { return same.fields[field[i]].field == from_use.code; }

  void place(const FormatLibrary& formats, size_t i);
  void fill_codes(size_t i, const Weight& w, uint8_t* out) const;
  void fill_field(size_t i, const Blob& blob, const std::string& weight, uint8_t* out) const;
  Bytes extra(const Scheme::Extra& e, const file::TensorSpec& spec) const;
  std::string filled_in(std::string text, bool as_rows = false) const;
};

namespace {

std::string with_words(std::string text, int64_t bits, int64_t group) {
  return filled(filled(std::move(text), "{bits}", std::to_string(bits)), "{group}", std::to_string(group));
}

// Rows and columns of one entry of a field of `f`.
std::pair<int64_t, int64_t> extent_of(const Format& f, size_t field, int64_t run, int64_t rows, int64_t columns) {
  switch (f.fields[field].level) {
    case Level::block:
      return {1, run};
    case Level::row:
      return {1, columns};
    case Level::tile:
      return {f.tile_rows, f.tile_columns};
    case Level::tensor:
      return {rows, columns};
  }
  LUMEN_UNREACHABLE();
}

}  // namespace

std::string Packing::Plan::filled_in(std::string text, bool as_rows) const {
  for (const Scheme::Word& w : scheme->words) {
    // Fields other than the codes determine the granularity of scales.
    Level level = Level::block;
    bool is_fixed = true;
    for (size_t i = 0; i < field.size(); ++i) {
      const SameNumbers::Source& s = same.fields[field[i]];
      if (scheme->fields[i].field == w.fixed) is_fixed = s.field < 0;
      if (is_code(i) || s.field < 0) continue;
      level = from->fields[s.field].level;
    }
    if (as_rows && level == Level::block) level = Level::row;
    std::string said = w.block;
    if (level == Level::row) said = w.row;
    if (level == Level::tile) said = w.tile;
    if (level == Level::tensor) said = w.tensor.empty() ? w.row : w.tensor;
    if (!w.fixed.empty()) said = is_fixed ? "true" : "false";
    text = filled(std::move(text), "{" + w.word + "}", said);
  }
  text = filled(filled(std::move(text), "{out}", std::to_string(rows())), "{in}", std::to_string(columns()));
  return with_words(std::move(text), bits, group);
}

// The shape of one field's tensor, and the places of its entries.
void Packing::Plan::place(const FormatLibrary& formats, size_t i) {
  const Scheme::Field& f = scheme->fields[i];
  const lumen::Field& target = to->fields[field[i]];
  const std::optional<FieldUse> use = field_use(*to);
  auto [out_step, in_step] = extent_of(*to, field[i], is_code(i) ? 1 : use->run[field[i]], rows(), columns());
  const SameNumbers::Source& source = same.fields[field[i]];
  const bool is_whole = source.field >= 0 && from->fields[source.field].level == Level::tensor;
  if (f.whole && is_whole) out_step = rows();
  file::TensorSpec spec;
  spec.name = f.tensor;
  spec.element = element_of(formats, f.type, target.type);
  const int word = bits_of(spec.element), entry = f.packed.empty() ? word : bits;
  std::vector<Places::Axis> axes;
  for (const std::string& name : f.axes) {
    if (!axes.empty() && axes.back().name == name) continue;
    Places::Axis axis{name, 1, 1, name == f.packed};
    axis.step = name == "out" ? out_step : name == "in" ? in_step : out_step * in_step;
    const int64_t whole = name == "out" ? rows() : name == "in" ? columns() : rows() * columns();
    const int64_t entries = (whole + axis.step - 1) / axis.step;
    axis.words = axis.packed ? (entries * entry + word - 1) / word : entries;
    axes.push_back(axis);
  }
  for (const Places::Axis& axis : axes) {
    const bool is_outer = axis.name == "out" && std::count(f.axes.begin(), f.axes.end(), "out") > 1 && axis.step == 1;
    if (is_outer) {
      for (size_t d = 0; d + 1 < shape.size(); ++d) spec.shape.push_back(shape[d].number());
    } else if (f.last > 0 && axis.name == axes.back().name) {
      spec.shape.push_back(axis.words / f.last);
      spec.shape.push_back(f.last);
    } else {
      spec.shape.push_back(axis.words);
    }
  }
  if (f.whole && is_whole) spec.shape = {1};
  if (f.scalar) spec.shape.clear();
  specs.push_back(spec);
  places.emplace_back(f, std::move(axes), word, entry, columns());
}

// Codes row by row; rows that share no byte may be filled concurrently.
void Packing::Plan::fill_codes(size_t i, const Weight& w, uint8_t* out) const {
  const size_t code = from_use.code;
  const lumen::Field& f = from->fields[code];
  const std::vector<int64_t>& entries = from_use.entry[code];
  const std::vector<int64_t> straight = places_in_bytes(f, entries);
  const BlobLayout layout = blob_layout(*from, rows(), columns());
  const Places& at = places[i];
  const int64_t most = (int64_t{1} << at.bits()) - 1, bands = (rows() + kBand - 1) / kBand;
  parallel_for(0, bands, [&](int64_t band) {
    std::vector<uint8_t> codes(columns());
    for (int64_t r = band * kBand; r < std::min(rows(), (band + 1) * kBand); ++r) {
      const uint8_t* record = w.bytes.data() + r * layout.row_stride;
      for (int64_t c = 0; c < columns(); record += from->block_bytes, c += from->block) {
        for (int64_t e = 0; e < from->block; ++e) {
          const uint64_t raw = straight.empty()
                                   ? f.layout.read(record, entries[e])
                                   : record[straight[e] >> 3] >> (straight[e] & 7) & ((1 << f.type.bits) - 1);
          codes[c + e] = (same.codes[raw] - scheme->fields[i].add) & most;
        }
      }
      for (int64_t c = 0; c < columns(); ++c) {
        const uint8_t value = codes[c];
        at.parts(r, c, [&](int64_t bit, int count, int value_bit) { put_bits(out, bit, count, value >> value_bit); });
      }
    }
  });
}

void Packing::Plan::fill_field(size_t i, const Blob& blob, const std::string& weight, uint8_t* out) const {
  const Scheme::Field& f = scheme->fields[i];
  const SameNumbers::Source& source = same.fields[field[i]];
  const lumen::Field& target = to->fields[field[i]];
  const Places& at = places[i];
  const uint64_t most = at.bits() >= 64 ? ~uint64_t{0} : (uint64_t{1} << at.bits()) - 1;
  int64_t out_step = rows(), in_step = columns();
  for (const Places::Axis& axis : at.axes()) {
    if (axis.name == "out") out_step = axis.step;
    if (axis.name == "in") in_step = axis.step;
    if (axis.name == "flat") {
      out_step = axis.step >= rows() * columns() ? rows() : 1;
      in_step = std::min(axis.step, columns());
    }
  }
  if (at.axes().size() == 1 && at.axes()[0].name == "out") in_step = columns();
  for (int64_t r = 0; r < rows(); r += out_step) {
    for (int64_t c = 0; c < columns(); c += in_step) {
      uint64_t value = source.constant;
      if (source.field >= 0) {
        const lumen::Field& own = from->fields[source.field];
        const uint64_t raw = blob.read(source.field, from_use.entry[source.field][c % from->block], r, c);
        const auto same_value = in_type(own.type, target.type, raw);
        if (!same_value)
          throw user_error("'{}': a value of field '{}' cannot be stored in '{}'", weight, own.name, f.tensor);
        value = *same_value;
      }
      if (f.times != 0) {
        const uint32_t low = value;
        const auto divided = std::bit_cast<float>(low);
        const auto x = multiplied(divided, f.times);
        if (!x)
          throw user_error("'{}': the scale {} of row {} is not a float divided by {}, as '{}' stores it", weight,
                           divided, r, f.times, f.tensor);
        value = std::bit_cast<uint32_t>(*x);
      }
      value = (value - f.add) & most;
      at.parts(r, c, [&](int64_t bit, int count, int value_bit) { put_bits(out, bit, count, value >> value_bit); });
    }
  }
}

namespace {

template <typename T>
std::vector<uint8_t> bytes_of(const std::vector<T>& values) {
  std::vector<uint8_t> out(values.size() * sizeof(T));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

}  // namespace

Bytes Packing::Plan::extra(const Scheme::Extra& e, const file::TensorSpec& spec) const {
  if (e.holds == "text") {
    const std::string text = filled_in(e.text);
    return std::vector<uint8_t>(text.begin(), text.end());
  }
  std::vector<int64_t> numbers;
  if (e.holds == "shape") {
    for (const graph::Dim& d : shape) numbers.push_back(d.number());
    return bytes_of(numbers);
  }
  if (e.holds == "groups") {
    std::vector<int32_t> groups;
    for (int64_t k = 0; k < columns(); ++k) groups.push_back(k / group);
    return bytes_of(groups);
  }
  LUMEN_CHECK(e.holds == "values", "'{}' holds '{}'", e.tensor, e.holds);
  if (spec.element.scalar == Scalar::f32) return bytes_of(std::vector<float>(e.values.begin(), e.values.end()));
  LUMEN_CHECK(spec.element.scalar == Scalar::u8, "values of '{}'", e.tensor);
  return bytes_of(std::vector<uint8_t>(e.values.begin(), e.values.end()));
}

std::vector<std::string> Packing::outputs() {
  std::vector<std::string> out;
  for (const Scheme& s : schemes())
    for (const std::string& name : s.outputs)
      if (std::ranges::find(out, name) == out.end()) out.push_back(name);
  return out;
}

namespace {

// Axes of the weights that a scheme packs; 0: any.
size_t axes_of(const Scheme& s) {
  for (const Scheme::Field& f : s.fields)
    if (const auto outer = std::count(f.axes.begin(), f.axes.end(), "out"); outer > 1) return outer + 1;
  return 0;
}

}  // namespace

Packing::PlanRef Packing::plan_for(const Scheme& scheme, const FormatLibrary& formats, const graph::Type& type) {
  auto plan = std::make_shared<Plan>();
  const FormatRef& f = type.element.format;
  if (axes_of(scheme) > 0 && type.shape.size() != axes_of(scheme)) return nullptr;
  plan->scheme = &scheme;
  plan->from = f;
  plan->shape = type.shape;
  const auto use = field_use(*f);
  if (!use) return nullptr;
  plan->from_use = *use;
  plan->bits = f->fields[use->code].type.bits;
  // Columns per scale, and the scales' type.
  plan->group = plan->columns();
  FieldType scale;
  for (size_t i = 0; i < f->fields.size(); ++i) {
    if (std::cmp_equal(i, use->code) || use->run[i] == 0) continue;
    if (f->fields[i].level == Level::block) plan->group = std::min(plan->group, use->run[i]);
    if (f->fields[i].type.is_float) scale = f->fields[i].type;
  }
  // A scheme with more bits per code could hold the same numbers, but in more bytes.
  const std::string& fixed = scheme.bits;
  if (fixed.find_first_not_of("0123456789") == std::string::npos && std::stoi(fixed) != plan->bits) return nullptr;
  if (!scheme.sizes.empty() && std::ranges::find(scheme.sizes, plan->bits) == scheme.sizes.end()) return nullptr;
  std::string text = with_words(scheme.format, plan->bits, plan->group);
  const FormatRef scales = plain_format(formats, scale);
  for (const Scheme::Field& field : scheme.fields)
    if (scales) text = filled(std::move(text), "{" + field.tensor + "}", scales->name);
  for (const Scheme::Extra& e : scheme.extras)
    text =
        filled(std::move(text), "{" + e.tensor + "}", table_text(std::vector<float>(e.values.begin(), e.values.end())));
  try {
    plan->to = format_of_scheme(formats, "models/checkpoints.toml", text);
  } catch (const Error&) {
    return nullptr;  // a scale type that the scheme cannot have
  }
  if (plan->columns() % plan->to->block != 0) return nullptr;
  const auto same = same_numbers(*f, *plan->to);
  if (!same) return nullptr;
  plan->same = *same;
  for (const Scheme::Field& field : scheme.fields) {
    const auto at = std::find_if(plan->to->fields.begin(), plan->to->fields.end(),
                                 [&](const lumen::Field& x) { return x.name == field.field; });
    LUMEN_CHECK(at != plan->to->fields.end(), "format {} has no field {}", plan->to->name, field.field);
    plan->field.push_back(at - plan->to->fields.begin());
    if (field.constant && plan->same.fields[plan->field.back()].field >= 0) return nullptr;
  }
  for (size_t i = 0; i < scheme.fields.size(); ++i) plan->place(formats, i);
  for (const Scheme::Extra& e : scheme.extras) {
    file::TensorSpec spec;
    spec.name = e.tensor;
    spec.element = element_of(formats, e.type, {});
    const Bytes bytes = plan->extra(e, spec);
    if (!e.scalar) spec.shape = {std::ssize(bytes) / (bits_of(spec.element) / 8)};
    plan->specs.push_back(spec);
  }
  plan->configs = {plan->filled_in(scheme.config)};
  if (plan->group == plan->columns()) plan->configs.push_back(plan->filled_in(scheme.config, true));
  for (const std::string& config : plan->configs)
    if (!describes(scheme, parse_json(config, "models/checkpoints.toml"))) return nullptr;
  return plan;
}

std::map<std::string, Packing::PlanRef> Packing::plans_for(const Scheme& scheme, const FormatLibrary& formats,
                                                           const std::vector<Announced>& packed, std::string* config,
                                                           std::string* clash) {
  std::map<std::string, PlanRef> out;
  std::map<std::string, PlanRef> known;  // by type
  std::vector<std::string> common;       // configs that describe all of them
  for (const Announced& a : packed) {
    PlanRef& plan = known[graph::print(a.type) + a.type.element.format->hash.hex()];
    if (!plan) plan = plan_for(scheme, formats, a.type);
    if (!plan) return {};
    const Announced& first = packed.front();
    if (out.empty()) common = plan->configs;
    std::erase_if(common,
                  [&](const std::string& c) { return std::ranges::find(plan->configs, c) == plan->configs.end(); });
    if (common.empty()) {
      *clash = fmt::format("'{}' is held in '{}' and '{}' in '{}', but one folder of this kind cannot hold both",
                           first.name, first.type.element.format->name, a.name, a.type.element.format->name);
      return {};
    }
    out[a.name] = plan;
  }
  *config = common.front();
  return out;
}

Packing::Packing(const std::string& output, const FormatLibrary& formats, const std::vector<Announced>& packed,
                 std::vector<std::string> left, const std::optional<HeldFormat>& cache)
    : left_(std::move(left)) {
  std::string clash;
  const bool has_inputs = std::ranges::any_of(packed, [](const Announced& a) { return a.input.has_value(); });
  if (packed.empty())
    throw Error(Exit::user, fmt::format("no weight of this model has a format that '{}' packs", output),
                "quantize it with `lumen quantize IN OUT TYPE --output-format ...`");
  for (const Scheme& s : schemes()) {
    if (!s.is_written_by(output) || (s.for_inputs && !has_inputs)) continue;
    plans_ = plans_for(s, formats, packed, &config_, &clash);
    if (plans_.empty()) continue;
    scheme_ = &s;
    break;
  }
  if (!scheme_) {
    const auto odd = std::find_if(packed.begin(), packed.end(), [&](const Announced& a) {
      return std::none_of(schemes().begin(), schemes().end(), [&](const Scheme& s) {
        return s.is_written_by(output) && plan_for(s, formats, a.type) != nullptr;
      });
    });
    std::vector<std::string> taken;
    for (const FormatRef& f : formats.all())
      if (takes(output, formats, f)) taken.push_back(f->name);
    const std::string hint = fmt::format("'{}' takes {}; all weights of a folder in one of them, or in floats", output,
                                         fmt::join(taken, ", "));
    if (odd != packed.end())
      throw Error(Exit::user,
                  fmt::format("'{}' is held in '{}', which '{}' cannot store", odd->name,
                              odd->type.element.format->name, output),
                  hint);
    throw Error(Exit::user, clash.empty() ? fmt::format("no single scheme of '{}' fits all weights", output) : clash,
                hint);
  }
  for (const auto& [name, plan] : plans_) {
    const std::string& end = scheme_->weight;
    if (!end.empty() && !name.ends_with("." + end))
      throw user_error("'{}' does not end in '.{}', as the weights that '{}' packs do", name, end, output);
    std::vector<file::TensorSpec>& specs = specs_[name];
    for (file::TensorSpec spec : plan->specs) {
      spec.name = name.substr(0, name.size() - end.size()) + spec.name;
      specs.push_back(std::move(spec));
    }
  }
  std::map<std::pair<std::string, bool>, const HeldRule*> rules;  // by format, and whether it has a scale
  for (const Announced& a : packed) {
    Input& input = inputs_[a.name];
    if (!a.input) continue;
    const HeldRule*& rule = rules[{a.input->format->hash.hex(), a.input->scale.has_value()}];
    if (!rule) rule = rule_of_format(activation_rules(), output, formats, *a.input);
    if (!rule) require_input(output, formats, fmt::format("the input of '{}'", a.name), *a.input);
    input.rule = rule;
    input.config = held_config(*input.rule, *a.input->format);
    if (!a.input->scale) continue;
    input.scale = *a.input->scale;
    specs_[a.name].push_back(
        scale_spec(*input.rule, a.name.substr(0, a.name.size() - scheme_->weight.size()) + input.rule->scale));
  }
  if (!cache) return;
  require_cache(output, formats, *cache);
  cache_ = rule_of_format(cache_rules(), output, formats, *cache);
  cache_config_ = held_config(*cache_, *cache->format);
}

void Packing::require_cache(const std::string& output, const FormatLibrary& formats, const HeldFormat& cache) {
  if (rule_of_format(cache_rules(), output, formats, cache)) return;
  throw Error(Exit::user,
              fmt::format("keys and values are held in '{}', which '{}' does not support", cache.format->name, output),
              "write a GGUF file");
}

void Packing::require_input(const std::string& output, const FormatLibrary& formats, const std::string& what,
                            const HeldFormat& held) {
  if (rule_of_format(activation_rules(), output, formats, held)) return;
  std::vector<std::string> taken;
  for (const FormatRef& f : formats.all())
    for (const std::optional<double> scale : {std::optional<double>(), std::optional(1.0)})
      if (f->encodes() && (!scale || tensor_scale(*f) >= 0) &&
          rule_of_format(activation_rules(), output, formats, {f, scale}))
        taken.push_back(f->name + (scale ? " (static)" : ""));
  throw Error(Exit::user,
              fmt::format("{} is held in '{}'{}, which '{}' does not support", what, held.format->name,
                          held.scale ? " under a static scale" : "", output),
              taken.empty() ? "write a GGUF file"
                            : fmt::format("'{}' supports {}; or write a GGUF file", output, fmt::join(taken, ", ")));
}

bool Packing::is_stacked(const std::string& output) {
  return std::any_of(schemes().begin(), schemes().end(),
                     [&](const Scheme& s) { return s.is_written_by(output) && axes_of(s) > 2; });
}

bool Packing::takes(const std::string& output, const FormatLibrary& formats, const FormatRef& f) {
  graph::Type type{{graph::Dim(int64_t{128}), graph::Dim(f->block * 128)}, {Scalar::f32, f}};
  if (is_stacked(output)) type.shape.insert(type.shape.begin(), graph::Dim(int64_t{2}));
  return std::any_of(schemes().begin(), schemes().end(),
                     [&](const Scheme& s) { return s.is_written_by(output) && plan_for(s, formats, type) != nullptr; });
}

bool Packing::has_float_experts(const std::string& output) {
  return std::ranges::any_of(schemes(), [&](const Scheme& s) { return s.is_written_by(output) && s.float_experts; });
}

bool Packing::is_unturned(const std::string& output) {
  return std::any_of(schemes().begin(), schemes().end(),
                     [&](const Scheme& s) { return s.is_written_by(output) && s.unturned; });
}

const std::vector<file::TensorSpec>& Packing::specs(const std::string& weight) const {
  return specs_.at(weight);
}

std::vector<Bytes> Packing::pack(const std::string& weight, const Weight& w) const {
  const Plan& plan = *plans_.at(weight);
  const std::vector<file::TensorSpec>& specs = specs_.at(weight);
  LUMEN_CHECK(w.type.element.format && w.type.element.format->hash == plan.from->hash && w.rows() == plan.rows() &&
                  w.columns() == plan.columns(),
              "'{}' is {}, but {} was announced", weight, graph::print(w.type), plan.from->name);
  const Blob blob(*plan.from, w);
  std::vector<Bytes> out;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (i >= plan.specs.size()) {
      out.push_back(bytes_of(std::vector<float>{inputs_.at(weight).scale}));
      continue;
    }
    if (i >= plan.field.size()) {
      out.push_back(plan.extra(scheme_->extras[i - plan.field.size()], specs[i]));
      continue;
    }
    Room room(specs[i].blob_bytes());
    if (plan.is_code(i))
      plan.fill_codes(i, w, room.data());
    else
      plan.fill_field(i, blob, weight, room.data());
    out.push_back(std::move(room).bytes());
  }
  return out;
}

// A group for each input setting: the one with most modules targets their whole class, the others name their modules
// and come first, as some readers take the first match.
void Packing::name_groups(nlohmann::json& config) const {
  const PackingMethod& method = method_of(config, "models/checkpoints.toml");
  std::map<std::string, std::pair<nlohmann::json, std::vector<std::string>>> kinds;  // modules
  for (const auto& [weight, input] : inputs_) {
    auto& kind = kinds[input.config.dump()];
    kind.first = input.config;
    kind.second.push_back(weight.substr(0, weight.size() - scheme_->weight.size() - 1));
  }
  const std::string &path = method.activations, &groups = method.groups.path;
  const std::string member = groups.empty() ? path : path.substr(groups.size() + 3);  // after "groups.*."
  if (groups.empty()) {
    if (kinds.size() > 1)
      throw Error(Exit::user, "some weights have quantized inputs and others do not, or in other formats",
                  "folders of this kind have one setting for all; write a GGUF file");
    if (!kinds.begin()->second.first.is_null()) config[member] = kinds.begin()->second.first;
    return;
  }
  std::vector<std::pair<nlohmann::json, std::vector<std::string>>> in_order;
  for (auto& [text, kind] : kinds) in_order.push_back(std::move(kind));
  std::ranges::stable_sort(in_order, {}, [](const auto& kind) { return kind.second.size(); });
  const nlohmann::json whole = *config[groups].begin();
  config[groups] = nlohmann::json::object();
  for (size_t i = 0; i < in_order.size(); ++i) {
    nlohmann::json group = whole;
    group[member] = in_order[i].first;
    if (i + 1 < in_order.size()) group[method.groups.targets] = in_order[i].second;
    config[groups][fmt::format("group_{}", i)] = std::move(group);
  }
}

nlohmann::json Packing::config() const {
  nlohmann::json out = parse_json(config_, "models/checkpoints.toml");
  name_groups(out);
  if (cache_) out[method_of(out, "models/checkpoints.toml").cache] = cache_config_;
  for (const std::string& module : scheme_->modules) out[module] = specs_.contains(module + "." + scheme_->weight);
  if (scheme_->left.empty()) return out;
  nlohmann::json names = scheme_->pattern.empty() ? nlohmann::json::array() : nlohmann::json::object();
  for (const std::string& weight : left_) {
    const std::string module = weight.ends_with(".weight") ? weight.substr(0, weight.size() - 7) : weight;
    if (scheme_->pattern.empty())
      names.push_back(module);
    else
      names[filled(scheme_->pattern, "{module}", filled(module, ".", "\\."))] = nlohmann::json::object();
  }
  out[scheme_->left] = std::move(names);
  return out;
}

}  // namespace lumen::model::arch
