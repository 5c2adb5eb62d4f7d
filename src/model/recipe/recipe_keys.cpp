#include "model/recipe/recipe_keys.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/check.h"
#include "base/error.h"
#include "run/device/available.h"

namespace lumen::model::recipe {
namespace {

constexpr double kMostSteps = 1e12, kMostRate = 1e30, kMostExtent = 1 << 24;

// Rows with a parser of their own.
const NamedChoice kShape = {
    [](const Recipe& r) -> std::string { return schedule_shape_name(r.schedule.shape); },
    [](Recipe& r, const std::string& name) { r.schedule.shape = schedule_shape(name); },
};
const NamedChoice kRecompute = {
    [](const Recipe& r) { return r.recompute; },
    [](Recipe& r, const std::string& text) {
      if (text != "none" && text != "maps" && text != "layers" && text != "auto")
        (void)run::parse_amount(text, "run.recompute (none, maps, layers, auto or an amount)");
      r.recompute = text;
    },
};
const NamedChoice kOffload = {
    [](const Recipe& r) { return r.offload; },
    [](Recipe& r, const std::string& text) {
      (void)offload_settings(text);
      r.offload = text;
    },
};
const NamedChoice kMemoryLimit = {
    [](const Recipe& r) { return r.memory_limit; },
    [](Recipe& r, const std::string& text) {
      if (!text.empty()) (void)run::parse_amount(text, "memory.limit");
      r.memory_limit = text;
    },
};
const NamedChoice kGradientScale = {
    [](const Recipe& r) { return r.products.gradient_scale; },
    [](Recipe& r, const std::string& name) {
      if (name == "learned")
        throw Error(Exit::usage, "products.gradient_scale: a gradient's scale cannot be learned",
                    "the backward pass is not differentiated, so that it has no gradient: fitted, or delayed");
      r.products.gradient_scale = name;
    },
};
// Aliases from other programs: ZeRO's stages and FSDP's strategies.
const NamedChoice kShard = {
    [](const Recipe& r) { return r.shard; },
    [](Recipe& r, const std::string& name) {
      r.shard = name == "0" || name == "no_shard"        ? "none"
                : name == "1"                            ? "states"
                : name == "2" || name == "shard_grad_op" ? "gradients"
                : name == "3" || name == "full_shard"    ? "parameters"
                                                         : name;
    },
};

// A reference to a member: (double, schedule.peak).
#define LUMEN_MEMBER(Type, member) static_cast<Type& (*)(Recipe&)>([](Recipe& r) -> Type& { return r.member; })
using Text = std::string;
using Strings = std::vector<std::string>;
using Optional = std::optional<double>;

constexpr double kLargestSeed = 4294967295.0;

#define REAL(member, least, most) LUMEN_MEMBER(double, member), least, most, ""
#define WHOLE(member, least, most) LUMEN_MEMBER(int64_t, member), least, most, ""
#define SEED(member) LUMEN_MEMBER(uint32_t, member), 0, kLargestSeed, ""
#define MAYBE(member, least, most) LUMEN_MEMBER(Optional, member), least, most, ""
#define SWITCH(member) LUMEN_MEMBER(bool, member), 0, 0, ""
#define TEXT(member) ONE_OF(member, "")
#define ONE_OF(member, names) LUMEN_MEMBER(Text, member), 0, 0, names
#define LIST(member) SOME_OF(member, "")
#define SOME_OF(member, names) LUMEN_MEMBER(Strings, member), 0, 0, names
#define PARSED(row, names) row, 0, 0, names
#define LUMEN_KEY(section, key, value, effect, names, help, ...) {#section, #key, value, RecipeEffect::effect, help},
#define LUMEN_KEY_FLAG(...)
const RecipeKey kKeys[] = {
#include "model/recipe/recipe_keys.def"
};
#undef LUMEN_KEY_FLAG
#undef LUMEN_KEY
#undef PARSED
#undef SOME_OF
#undef LIST
#undef ONE_OF
#undef TEXT
#undef SWITCH
#undef MAYBE
#undef SEED
#undef WHOLE
#undef REAL
#undef LUMEN_MEMBER

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// Why a number is none of the key's; "" where it is.
std::string problem_of(const RecipeKey& key, double value, const std::string& text) {
  const Bounds bounds = {key.least, key.most};
  if (!bounds.holds(value)) return fmt::format("must be {}, not {}", bounds.text(), text);
  if (key.is_whole() && value != std::floor(value)) return fmt::format("must be a whole number, not {}", text);
  return {};
}
std::string problem_of(const RecipeKey& key, double value) {
  return problem_of(key, value, fmt::format("{}", value));
}

// Error (usage) where the key has names, and the text or one of the list is none of them.
void require_names(const RecipeKey& key, Recipe& recipe) {
  if (key.choices.empty()) return;
  const std::vector<std::string> known = key.names();
  const auto require = [&](const std::string& name) {
    if (std::ranges::find(known, name) == known.end())
      throw Error(Exit::usage, fmt::format("{}: '{}' is unknown", key.name(), name),
                  fmt::format("{}", fmt::join(known, ", ")));
  };
  if (const auto text = std::get_if<std::string& (*)(Recipe&)>(&key.value)) require((*text)(recipe));
  if (const auto choice = std::get_if<NamedChoice>(&key.value)) require(choice->get(recipe));
  if (const auto list = std::get_if<Strings& (*)(Recipe&)>(&key.value)) std::ranges::for_each((*list)(recipe), require);
}

double number_of(const RecipeKey& key, Recipe& recipe) {
  if (const auto real = std::get_if<double& (*)(Recipe&)>(&key.value)) return (*real)(recipe);
  if (const auto whole = std::get_if<int64_t& (*)(Recipe&)>(&key.value)) return (*whole)(recipe);
  if (const auto seed = std::get_if<uint32_t& (*)(Recipe&)>(&key.value)) return (*seed)(recipe);
  return std::get<Optional& (*)(Recipe&)>(key.value)(recipe).value();
}

bool is_given(const RecipeKey& key, Recipe& recipe) {
  const auto optional = std::get_if<Optional& (*)(Recipe&)>(&key.value);
  return !optional || (*optional)(recipe);
}

// Whole numbers are exact: their bounds are below 2^53.
void set_number(const RecipeKey& key, double value, Recipe& recipe) {
  if (const auto real = std::get_if<double& (*)(Recipe&)>(&key.value)) (*real)(recipe) = value;
  if (const auto whole = std::get_if<int64_t& (*)(Recipe&)>(&key.value)) (*whole)(recipe) = static_cast<int64_t>(value);
  if (const auto seed = std::get_if<uint32_t& (*)(Recipe&)>(&key.value)) (*seed)(recipe) = static_cast<uint32_t>(value);
  if (const auto optional = std::get_if<Optional& (*)(Recipe&)>(&key.value)) (*optional)(recipe) = value;
}

}  // namespace

std::vector<std::string> RecipeKey::names() const {
  std::vector<std::string> out;
  for (size_t at = 0; at < choices.size();) {
    const size_t end = std::min(choices.find(' ', at), choices.size());
    out.push_back(choices.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::span<const RecipeKey> recipe_keys() {
  return kKeys;
}

const RecipeKey& recipe_key(const std::string& name) {
  const auto found =
      std::find_if(std::begin(kKeys), std::end(kKeys), [&](const RecipeKey& k) { return k.name() == name; });
  LUMEN_CHECK(found != std::end(kKeys), "no recipe key {}", name);
  return *found;
}

std::string value_text(const RecipeKey& key, const Recipe& recipe) {
  auto& r = const_cast<Recipe&>(recipe);  // the rows' accessors are shared with writing
  return std::visit(Overloaded{
                        [&](std::string& (*get)(Recipe&)) { return model::recipe::quoted(get(r)); },
                        [&](std::vector<std::string>& (*get)(Recipe&)) { return model::recipe::quoted_list(get(r)); },
                        [&](const NamedChoice& choice) { return model::recipe::quoted(choice.get(r)); },
                        [&](Optional& (*get)(Recipe&)) { return get(r) ? fmt::format("{}", *get(r)) : std::string(); },
                        [&](const auto& get) { return fmt::format("{}", get(r)); },
                    },
                    key.value);
}

namespace {

// Error with its position where the value is not of the key's type, or a number out of bounds.
void read_plain(const RecipeKey& key, const Toml& section, Recipe& recipe) {
  const auto refuse = [&](const std::string& problem) {
    if (!problem.empty()) throw error_at(section.place(key.key), fmt::format("{} {}", key.key, problem));
  };
  std::visit(Overloaded{
                 [&](bool& (*get)(Recipe&)) { get(recipe) = section.boolean(key.key); },
                 [&](std::string& (*get)(Recipe&)) { get(recipe) = section.text(key.key); },
                 [&](std::vector<std::string>& (*get)(Recipe&)) { get(recipe) = section.texts(key.key); },
                 [&](const NamedChoice& choice) { choice.set(recipe, section.text(key.key)); },
                 [&](double& (*get)(Recipe&)) { get(recipe) = section.number(key.key); },
                 [&](Optional& (*get)(Recipe&)) { get(recipe) = section.number(key.key); },
                 [&](int64_t& (*get)(Recipe&)) { get(recipe) = section.integer(key.key); },
                 [&](uint32_t& (*get)(Recipe&)) {
                   const int64_t value = section.integer(key.key);
                   refuse(problem_of(key, value));
                   get(recipe) = value;
                 },
             },
             key.value);
  if (key.is_number()) refuse(problem_of(key, number_of(key, recipe)));
}

}  // namespace

void read_value(const RecipeKey& key, const Toml& section, Recipe& recipe) {
  if (!section.has(key.key)) return;
  recipe.places[key.name()] = place_text(section.place(key.key));
  if (key.is_number() || key.is_switch()) return read_plain(key, section, recipe);
  try {
    read_plain(key, section, recipe);
    require_names(key, recipe);
  } catch (const Error& e) {
    const std::string place = place_text(section.place(key.key));
    if (std::string_view(e.what()).starts_with(place)) throw;  // it is no text
    throw error_at(section.place(key.key), e.what(), e.hint());
  }
}

std::string problem_of(const RecipeKey& key, const std::string& text) {
  if (!key.is_number()) return {};
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != 0) return fmt::format("'{}' is no number", text);
  return problem_of(key, value, text);
}

void set_value(const RecipeKey& key, const std::string& text, Recipe& recipe) {
  recipe.places.erase(key.name());
  if (const std::string problem = problem_of(key, text); !problem.empty())
    throw usage_error("{}: {}", key.name(), problem);
  if (key.is_number()) return set_number(key, std::strtod(text.c_str(), nullptr), recipe);
  std::visit(Overloaded{
                 [&](bool& (*get)(Recipe&)) {
                   if (text != "true" && text != "false")
                     throw usage_error("{} must be true or false, not '{}'", key.name(), text);
                   get(recipe) = text == "true";
                 },
                 [&](std::string& (*get)(Recipe&)) { get(recipe) = text; },
                 [&](std::vector<std::string>& (*get)(Recipe&)) {
                   std::vector<std::string>& list = get(recipe);
                   list.clear();
                   for (size_t at = 0; at <= text.size();) {
                     const size_t comma = std::min(text.find(',', at), text.size());
                     if (comma > at) list.push_back(text.substr(at, comma - at));
                     at = comma + 1;
                   }
                 },
                 [&](const NamedChoice& choice) { choice.set(recipe, text); },
                 [&](const auto&) {},
             },
             key.value);
  require_names(key, recipe);
}

void check_value(const RecipeKey& key, const Recipe& recipe) {
  auto& r = const_cast<Recipe&>(recipe);
  require_names(key, r);
  if (!key.is_number() || !is_given(key, r)) return;
  if (const std::string problem = problem_of(key, number_of(key, r)); !problem.empty())
    throw usage_error("{}{} {}", place_of(recipe, key.name()), key.name(), problem);
}

std::string default_text(const RecipeKey& key) {
  Recipe r;
  if (const auto text = std::get_if<std::string& (*)(Recipe&)>(&key.value)) return (*text)(r);
  if (const auto choice = std::get_if<NamedChoice>(&key.value)) return choice->get(r);
  if (const auto list = std::get_if<Strings& (*)(Recipe&)>(&key.value))
    return fmt::format("{}", fmt::join((*list)(r), ","));
  return value_text(key, r);
}

std::string place_text(const Place& place) {
  const LineColumn at = line_column(place);
  return fmt::format("{}:{}:{}", place.source ? place.source->name : "", at.line, at.column);
}

std::string place_of(const Recipe& recipe, const std::string& key) {
  const auto at = recipe.places.find(key);
  return at == recipe.places.end() ? "" : at->second + ": ";
}

std::string place_of_section(const Recipe& recipe, const std::string& section, const std::string& message) {
  std::string first;
  for (const auto& [key, place] : recipe.places) {
    if (!key.starts_with(section + ".")) continue;
    if (message.find(key.substr(section.size() + 1)) != std::string::npos) return place + ": ";
    if (first.empty()) first = place + ": ";
  }
  return first;
}

std::string quoted(const std::string& text) {
  std::string q = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      q += fmt::format("\\u{:04x}", byte);
      continue;
    }
    if (c == '"' || c == '\\') q += '\\';
    q += c;
  }
  return q + "\"";
}

std::string quoted_list(const std::vector<std::string>& strings) {
  std::string all = "[";
  for (size_t i = 0; i < strings.size(); ++i) all += (i ? ", " : "") + quoted(strings[i]);
  return all + "]";
}

}  // namespace lumen::model::recipe
