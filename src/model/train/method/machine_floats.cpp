#include "model/train/method/machine_floats.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"
#include "number/facts/facts.h"

namespace lumen::model::train {
namespace {

constexpr std::string_view kPrefix = "machine_";
constexpr const char* kRow = "_row";
constexpr const char* kTensor = "_tensor";

// The properties that a machine float's name specifies.
struct Wanted {
  int exponent = 0, mantissa = 0;
  std::optional<Level> scales;  // one scale per record of this level; nullopt: no scales
};

std::optional<Wanted> wanted(std::string_view name) {
  if (!name.starts_with(kPrefix)) return {};
  std::string_view rest = name.substr(kPrefix.size());
  Wanted out;
  for (const auto& [end, level] : {std::pair{std::string_view(kRow), Level::row}, {kTensor, Level::tensor}})
    if (rest.ends_with(end)) {
      out.scales = level;
      rest.remove_suffix(end.size());
    }
  if (rest.size() == 4 && rest[0] == 'e' && rest[2] == 'm') {
    out.exponent = rest[1] - '0';
    out.mantissa = rest[3] - '0';
  }
  if (out.exponent > 1 && out.exponent + out.mantissa == 7) return out;
  throw Error(Exit::usage, fmt::format("'{}' is no 8-bit float of a machine", name),
              "machine_e4m3 and machine_e5m2 are; with the ending _tensor or _row they have f32 scales");
}

bool is_code(const FieldType& t) {
  return t.is_float && t.has_sign && t.bits == 8;
}

// The 8-bit float of a format with no other field, or with one f32 scale per record of a level; otherwise null.
const FieldType* float_of(const Format& f, std::optional<Level> scales) {
  if (f.block != 1 || f.code_field < 0 || f.fields.size() != (scales ? 2U : 1U) || !f.encodes()) return nullptr;
  for (int k = 0; k < std::ssize(f.fields); ++k) {
    const Field& field = f.fields[k];
    if (k == f.code_field) continue;
    if (field.level != *scales || field.count != 1 || !field.type.is_float || field.type.bits != 32) return nullptr;
  }
  const FieldType& t = f.fields[f.code_field].type;
  return is_code(t) ? &t : nullptr;
}

template <class F>
void for_each_name(recipe::Recipe& r, const F& see) {
  recipe::ProductSettings& p = r.products;
  for (std::string* name : {&r.precision, &r.kept, &p.activation, &p.weight, &p.gradient, &p.forward_activation,
                            &p.forward_weight, &p.input_weight, &p.input_gradient, &p.weight_activation,
                            &p.weight_gradient, &p.attention, &p.attention_gradient})
    see(*name);
}

}  // namespace

std::string machine_float(const std::string& name, const Multiplies& multiplies, const FormatLibrary& formats) {
  const auto want = wanted(name);
  if (!want) return name;
  std::string usual;
  for (const FormatRef& f : formats.all()) {
    const FieldType* const t = formats.is_embedded(f->name) ? float_of(*f, want->scales) : nullptr;
    if (!t || t->exponent_bits != want->exponent || t->mantissa_bits != want->mantissa) continue;
    if (multiplies(*t)) return f->name;
    if (t->bias == (1 << (want->exponent - 1)) - 1 && usual.empty()) usual = f->name;
  }
  if (usual.empty()) throw user_error("'{}': no format of the library is that", name);
  return usual;
}

recipe::Recipe with_machine_floats(recipe::Recipe recipe, const Multiplies& multiplies, const FormatLibrary& formats,
                                   std::string* said) {
  std::map<std::string, std::string> taken;
  for_each_name(recipe, [&](std::string& name) {
    const std::string is = machine_float(name, multiplies, formats);
    if (is != name) taken[name] = is;
    name = is;
  });
  if (!said || taken.empty()) return recipe;
  std::vector<std::string> parts;
  for (const auto& [name, is] : taken) parts.push_back(fmt::format("{} is {}", name, is));
  *said = fmt::format("8-bit float of this machine: {}", fmt::join(parts, ", "));
  return recipe;
}

std::string other_floats(const recipe::Recipe& recipe, const Multiplies& multiplies, const FormatLibrary& formats) {
  std::vector<std::string> parts;
  recipe::Recipe seen = recipe;
  const std::vector<FormatRef> all = formats.all();
  for_each_name(seen, [&](const std::string& name) {
    const FormatRef f = name.empty() ? nullptr : formats.find(name);
    if (!f || f->code_field < 0 || std::find(parts.begin(), parts.end(), name) != parts.end()) return;
    const FieldType& t = f->fields[f->code_field].type;
    if (!is_code(t) || multiplies(t)) return;
    if (std::any_of(all.begin(), all.end(), [&](const FormatRef& other) {
          const FieldType* own = plain_field(*other);
          return own && is_code(*own) && own->exponent_bits == t.exponent_bits && multiplies(*own);
        }))
      parts.push_back(name);
  });
  if (parts.empty()) return "";
  return fmt::format(
      "{}: the run's 8-bit float is not the one that this machine multiplies; it stays, and codes are multiplied as "
      "16-bit floats",
      fmt::join(parts, ", "));
}

}  // namespace lumen::model::train
