// Builds families from syntax trees. Attributes that are handled here: model: part (not a family itself), gguf,
// gguf_if, hf, hf_if, hf_type, hf_ignore, gguf_ignore, hf_inside, hf_prefix, hf_beside (and those of config_rules.h);
// config keys: gguf, gguf_choices, gguf_plus, gguf_times, gguf_else, gguf_tensor, gguf_length, hf, hf_words,
// hf_members, hf_letters, hf_each, when, gguf_when; parameters: frozen, absent_if and hf_halves (both name a config
// key), hf_plus, hf_transposed, hf_fused, hf_rows, hf_columns, hf_packed, and those that elaborate.h lists.
#include "model/arch/family/family.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/embedded.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "lang/parser.h"

namespace lumen::model::arch {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// The strings of an attribute, its first `most` values.
std::vector<std::string> attribute_texts(const std::vector<lang::Attribute>& attributes, std::string_view name,
                                         size_t most = SIZE_MAX) {
  std::vector<std::string> texts;
  for (const lang::Attribute& a : attributes) {
    if (a.name != name) continue;
    for (const lang::ExprPtr& value : a.values) {
      if (texts.size() == most) break;
      if (value->kind != lang::ExprKind::string && value->kind != lang::ExprKind::name) {
        throw error_at(value->place, fmt::format("attribute '{}' takes strings", name), "write the name in quotes");
      }
      texts.push_back(value->text);
    }
  }
  return texts;
}

double number_of(const lang::Attribute& a, size_t value) {
  if (value >= a.values.size() || a.values[value]->kind != lang::ExprKind::number)
    throw error_at(a.place, fmt::format("attribute '{}' needs a number as value {}", a.name, value + 1));
  return a.values[value]->number;
}

// The layer's number in a parameter's name, "layers.3.wq"; "" for others.
std::string layer_in(const std::string& parameter) {
  const size_t first = parameter.find('.'), last = parameter.rfind('.');
  return first == std::string::npos || first == last ? "" : parameter.substr(first + 1, last - first - 1);
}

// Replaces {i} by the number of the parameter's layer.
std::string layer_filled(std::string text, const std::string& parameter) {
  const std::string number = layer_in(parameter);
  if (number.empty()) return text;
  for (size_t at = text.find("{i}"); at != std::string::npos; at = text.find("{i}")) text.replace(at, 3, number);
  return text;
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
  return text;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "model_type" of config.json; the name of the GGUF architecture where the family says none.
std::vector<std::string> types_of(const lang::ModelDecl& decl) {
  for (const char* attribute : {"hf_type", "gguf"}) {
    auto types = attribute_texts(decl.attributes, attribute);
    if (!types.empty()) return types;
  }
  return {decl.name};
}

// Whether one of a family's conditions on config.json holds; nullopt for families without conditions.
std::optional<bool> condition_holds(const lang::ModelDecl& decl, const Library::Says& says) {
  std::optional<bool> holds;
  for (const lang::Attribute& a : decl.attributes) {
    if (a.name != "hf_if") continue;
    const auto texts = attribute_texts({a}, a.name);
    if (texts.empty() || texts.size() > 2)
      throw error_at(a.place, "hf_if takes a key of config.json and, if needed, a word in its value",
                     "e.g. hf_if \"layer_types\" \"moe\"");
    holds = holds.value_or(false) || (says && says(texts[0], texts.size() > 1 ? texts[1] : ""));
  }
  return holds;
}

std::vector<Family::Inside> insides_of(const lang::ModelDecl& decl) {
  std::vector<Family::Inside> out;
  for (const lang::Attribute& a : decl.attributes) {
    if (a.name != "hf_inside") continue;
    const auto texts = attribute_texts({a}, a.name);
    if (texts.size() != 2)
      throw error_at(a.place, "hf_inside takes an architecture and a member of its config",
                     "e.g. hf_inside \"LlavaForConditionalGeneration\" \"text_config\"");
    out.push_back({texts[0], texts[1]});
  }
  return out;
}

bool has_attribute(const lang::ModelDecl& decl, std::string_view name) {
  return std::ranges::any_of(decl.attributes, [&](const lang::Attribute& a) { return a.name == name; });
}

std::string recipe_name(std::string_view path) {
  return lower(std::filesystem::path(std::string(path)).stem().string());
}

// The rows or columns of a larger matrix that hf_rows or hf_columns (`a`) name.
void read_ranges(const lang::ModelDecl& decl, const lang::Attribute& a, const graph::Config& config,
                 Parameter& parameter) {
  const auto count = [&](size_t value) {
    if (value >= a.values.size()) throw error_at(a.place, fmt::format("{} needs a name and three numbers", a.name));
    const double n = graph::config_number(decl, *a.values[value], config);
    if (!(n >= 0 && n <= 1e9) || n != std::floor(n)) throw error_at(a.place, fmt::format("{} rows", n));
    return static_cast<int64_t>(n);
  };
  parameter.hf_rows = layer_filled(attribute_texts({a}, a.name, 1).at(0), parameter.name);
  parameter.hf_of = count(3);
  parameter.hf_columns = a.name == "hf_columns";
  for (size_t value = 1; value == 1 || value < a.values.size(); value += value == 1 ? 3 : 2) {
    const Parameter::Range range = {count(value), count(value + 1)};
    parameter.hf_ranges.push_back(range);
    parameter.hf_count += range.count;
    if (range.from + range.count > parameter.hf_of)
      throw error_at(a.place, fmt::format("{} takes parts out of larger ones", a.name));
  }
  if (parameter.hf_ranges.size() > 1 && parameter.shape.size() != 2)
    throw error_at(a.place, fmt::format("{} takes several ranges out of matrices only", a.name));
  if (!parameter.hf_columns && parameter.shape.size() != 2 && parameter.shape.size() != 3)
    throw error_at(a.place, "hf_rows takes matrices out of larger ones");
}

}  // namespace

std::shared_ptr<Library> Library::builtin() {
  auto library = std::make_shared<Library>();
  library->formats_ = FormatLibrary::builtin();
  for (const embedded::File& file : embedded::models()) {
    if (file.path.starts_with("recipes/objectives/")) continue;  // model/recipe/objective/objective.h
    if (file.path.ends_with(".lum")) {
      library->add_model_text(
          std::make_shared<Source>(Source{fmt::format("<embedded {}>", file.path), std::string(file.text)}));
    } else if (file.path.starts_with("recipes/")) {
      library->recipes_.push_back({recipe_name(file.path), std::string(file.text)});
    }
  }
  return library;
}

const lang::File& Library::add_model_text(SourceRef source) {
  files_.push_back(std::make_unique<lang::File>(lang::parse_file(std::move(source))));
  const lang::File& file = *files_.back();
  if (!file.formats.empty() || !file.aliases.empty()) formats_.add(file);
  return file;
}

const lang::File& Library::replace_model_text(SourceRef source) {
  auto file = std::make_unique<lang::File>(lang::parse_file(std::move(source)));
  const auto same_name = [&](const lang::File& other) {
    for (const lang::ModelDecl& a : file->models) {
      for (const lang::ModelDecl& b : other.models) {
        if (a.name == b.name) return true;
      }
    }
    for (const lang::Function& a : file->functions) {
      for (const lang::Function& b : other.functions) {
        if (a.name == b.name) return true;
      }
    }
    return false;
  };
  std::erase_if(files_, [&](const auto& other) { return same_name(*other); });
  if (!file->formats.empty() || !file->aliases.empty()) formats_.add(*file);
  files_.push_back(std::move(file));
  return *files_.back();
}

void Library::add_format_folder(const std::filesystem::path& folder) {
  formats_.add_folder(folder);
}

void Library::add_model_folder(const std::filesystem::path& folder) {
  for (const std::filesystem::path& path : list_folder(folder)) {
    if (path.extension() == ".lum") {
      add_model_text(std::make_shared<Source>(Source{path.string(), read_file(path, 16 << 20)}));
    } else if (path.extension() == ".toml") {
      recipes_.insert(recipes_.begin(), {recipe_name(path.string()), read_file(path, 16 << 20)});
    }
  }
}

const lang::ModelDecl& Library::optimizer(const std::string& name) const {
  const lang::ModelDecl* found = nullptr;
  for (const auto& file : files_)
    for (const lang::ModelDecl& decl : file->models) {
      if (!graph::is_optimizer(decl) || decl.name != name) continue;
      if (found)
        throw error_at(decl.place, fmt::format("optimizer '{}' exists already, in {}", name, found->place.source->name),
                       "choose another name");
      found = &decl;
    }
  if (found) return *found;
  throw Error(
      Exit::usage, fmt::format("no optimizer is called '{}'", name),
      fmt::format("known optimizers: {}; others are added as .lum files with --models DIR", join(optimizer_names())));
}

std::vector<std::string> Library::optimizer_names() const {
  std::vector<std::string> names;
  for (const auto& file : files_)
    for (const lang::ModelDecl& decl : file->models)
      if (graph::is_optimizer(decl)) names.push_back(decl.name);
  return names;
}

graph::Scope Library::scope() const {
  graph::Scope scope;
  for (const auto& file : files_) scope.files.push_back(file.get());
  scope.formats = &formats_;
  return scope;
}

std::vector<const lang::ModelDecl*> Library::family_declarations(bool towers) const {
  std::vector<const lang::ModelDecl*> found;
  for (const auto& file : files_) {
    for (const lang::ModelDecl& decl : file->models) {
      const auto is = [&](std::string_view attribute) { return has_attribute(decl, attribute); };
      if (!is("part") && !graph::is_optimizer(decl) && is("tower") == towers) found.push_back(&decl);
    }
  }
  return found;
}

std::vector<FamilyRef> Library::families() const {
  std::vector<FamilyRef> found;
  for (const lang::ModelDecl* decl : family_declarations()) found.push_back(built(*decl));
  return found;
}

std::vector<std::string> Library::family_names() const {
  std::vector<std::string> names;
  for (const lang::ModelDecl* decl : family_declarations()) names.push_back(decl->name);
  return names;
}

FamilyRef Library::family(const std::string& name) const {
  for (const bool towers : {false, true})
    for (const lang::ModelDecl* decl : family_declarations(towers))
      if (decl->name == name) return built(*decl);
  throw Error(Exit::user, fmt::format("no model family is called '{}'", name),
              fmt::format("known families: {}", join(family_names())));
}

FamilyRef Library::family_of_gguf(const std::string& architecture,
                                  const std::function<double(const std::string&)>& value_of) const {
  // Where several conditions hold, prefers the family that extends the others: a mixture of experts with sliding
  // windows is a mixture of experts.
  const std::function<bool(const std::string&, const std::string&)> extends = [&](const std::string& name,
                                                                                  const std::string& other) {
    for (const auto& file : files_) {
      for (const lang::ModelDecl& decl : file->models) {
        if (decl.name != name) continue;
        const auto bases = attribute_texts(decl.attributes, "extends");
        return std::any_of(bases.begin(), bases.end(),
                           [&](const std::string& base) { return base == other || extends(base, other); });
      }
    }
    return false;
  };
  FamilyRef plain, found;
  for (const FamilyRef& f : families()) {
    if (f->gguf_architecture() != architecture) continue;
    if (!f->gguf_condition().empty() && f->accepts_gguf(value_of(f->gguf_condition())) &&
        (!found || extends(f->name(), found->name())))
      found = f;
    if (f->gguf_condition().empty() && !plain) plain = f;
  }
  if (found) return found;
  if (plain) return plain;
  throw Error(
      Exit::user, fmt::format("no model family reads the GGUF architecture '{}'", architecture),
      fmt::format("known families: {}; a family is one .lum file, added with --models DIR", join(family_names())));
}

FamilyRef Library::built(const lang::ModelDecl& decl) const {
  return std::make_shared<Family>(shared_from_this(), decl);
}

FamilyRef Library::family_of_hf(const std::string& architecture, const std::string& type, const Says& says) const {
  constexpr std::string_view kBare = "Model";
  const bool is_bare = architecture.ends_with(kBare);
  const std::string stem = is_bare ? architecture.substr(0, architecture.size() - kBare.size()) : "";
  const lang::ModelDecl *of_both = nullptr, *of_architecture = nullptr, *of_type = nullptr;
  const lang::ModelDecl* of_exact = nullptr;  // named itself, where others are named by their heads
  const auto take = [](const lang::ModelDecl*& best, const lang::ModelDecl* decl, bool is_chosen) {
    if (!best || is_chosen) best = decl;
  };
  for (const lang::ModelDecl* decl : family_declarations()) {
    const std::optional<bool> holds = condition_holds(*decl, says);
    if (holds == false) continue;
    const auto names = attribute_texts(decl->attributes, "hf");
    const bool named = has(names, architecture);
    const bool stemmed = is_bare && std::any_of(names.begin(), names.end(), [&](const std::string& name) {
                           return name.starts_with(stem + "For");
                         });
    const bool typed = !names.empty() && has(types_of(*decl), type);
    if (named && typed) take(of_exact, decl, holds.has_value());
    if (stemmed && typed) take(of_both, decl, holds.has_value());
    if (named || stemmed) take(of_architecture, decl, holds.has_value());
    if (typed) take(of_type, decl, holds.has_value());
  }
  if (of_exact) return built(*of_exact);
  if (of_both) return built(*of_both);
  // A known type decides only among architectures that predict tokens or have no head: others have heads of their own.
  if (of_type && (of_architecture || architecture.empty() || is_bare)) return built(*of_type);
  if (of_architecture) return built(*of_architecture);
  throw Error(
      Exit::user,
      fmt::format("no model family reads the architecture '{}'", architecture.empty() ? type : architecture),
      fmt::format("known families: {}; a family is one .lum file, added with --models DIR", join(family_names())));
}

std::string Library::text_member(const std::string& architecture) const {
  for (const lang::ModelDecl* decl : family_declarations())
    for (const Family::Inside& inside : insides_of(*decl))
      if (inside.architecture == architecture) return inside.member;
  return "";
}

FamilyRef Library::family_inside(const std::string& architecture, const std::string& type, bool must_be_known) const {
  // One that names the architecture, too, comes first; then one that reads all files of its type.
  const lang::ModelDecl *of_both = nullptr, *of_type = nullptr, *of_architecture = nullptr;
  bool is_open = false;  // of_type reads all files
  for (const lang::ModelDecl* decl : family_declarations()) {
    const std::vector<Family::Inside> insides = insides_of(*decl);
    const bool is_inside =
        std::ranges::any_of(insides, [&](const Family::Inside& one) { return one.architecture == architecture; });
    const bool is_typed = !type.empty() && has(types_of(*decl), type);
    if (is_inside && is_typed && !of_both) of_both = decl;
    if (is_inside && !of_architecture) of_architecture = decl;
    if (!is_typed || (of_type && (is_open || has_attribute(*decl, "hf_if")))) continue;
    of_type = decl;
    is_open = !has_attribute(*decl, "hf_if");
  }
  if (of_both) return built(*of_both);
  if (of_type) return built(*of_type);
  if (of_architecture && (type.empty() || !must_be_known)) return built(*of_architecture);
  throw Error(
      Exit::user,
      fmt::format("the text part of {} is of the type '{}', which no model family reads", architecture, type),
      fmt::format("known families: {}; a family is one .lum file, added with --models DIR", join(family_names())));
}

FamilyRef Library::family_with_size(const std::string& size) const {
  for (const FamilyRef& f : families()) {
    const auto sizes = f->sizes();
    if (std::find(sizes.begin(), sizes.end(), size) != sizes.end()) return f;
  }
  return nullptr;
}

std::optional<Library::RecipeText> Library::recipe(const std::string& name) const {
  const std::string key = lower(name);
  for (const RecipeText& r : recipes_) {
    if (r.name == key) return r;
  }
  return std::nullopt;
}

std::vector<std::string> Library::recipe_names() const {
  std::vector<std::string> names;
  for (const RecipeText& r : recipes_) names.push_back(r.name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

int64_t Parameter::row_of_whole(int64_t row, int64_t rows) const {
  const int64_t groups = rows / hf_count;
  for (const Range& range : hf_ranges) {
    if (row < groups * range.count) return row / range.count * hf_of + range.from + row % range.count;
    row -= groups * range.count;
  }
  LUMEN_UNREACHABLE("row {} after the ranges of {}", row, name);
}

int64_t Parameter::count() const {
  return graph::elements(shape).number();
}

bool Parameter::is_vector() const {
  return shape.size() < 2 || role == "bias";
}

std::vector<std::string> ConfigKey::entries(const graph::Config& config) const {
  if (!has_axis) return {name};
  std::vector<std::string> out;
  for (int64_t i = 0; config.contains(fmt::format("{}.{}", name, i)); ++i) out.push_back(fmt::format("{}.{}", name, i));
  return out;
}

Family::Family(LibraryRef library, const lang::ModelDecl& decl)
    : library_(std::move(library)), decl_(graph::complete_model(library_->scope(), decl)) {
  const auto first = [&](std::string_view name, const std::string& otherwise) {
    const auto texts = attribute_texts(decl_.attributes, name, 1);
    return texts.empty() ? otherwise : texts.front();
  };
  gguf_ = first("gguf", decl_.name);
  hf_ = attribute_texts(decl_.attributes, "hf");
  hf_types_ = types_of(decl_);
  inside_ = insides_of(decl_);
  hf_ignored_ = attribute_texts(decl_.attributes, "hf_ignore");
  gguf_ignored_ = attribute_texts(decl_.attributes, "gguf_ignore");
  const auto filled = [&](std::string name) {
    if (const size_t at = name.find("{a}"); at != std::string::npos) name.replace(at, 3, gguf_);
    return name;
  };
  gguf_if_ = filled(first("gguf_if", ""));
  for (const lang::Attribute& a : decl_.attributes) {
    if (a.name == "gguf_if" && a.values.size() > 1) gguf_value_ = number_of(a, 1);
  }
  const auto prefixes = attribute_texts(decl_.attributes, "hf_prefix");
  if (prefixes.size() % 2 != 0) throw error_at(decl_.place, "hf_prefix takes pairs: the file's prefix, and ours");
  for (size_t n = 0; n < prefixes.size(); n += 2) prefixes_.emplace_back(prefixes[n], prefixes[n + 1]);
  beside_ = attribute_texts(decl_.attributes, "hf_beside");
  for (const lang::ConfigKey& key : decl_.config) {
    ConfigKey out;
    out.name = key.name;
    const auto scalar = scalar_from_name(key.type.name);
    out.is_float = scalar && lumen::is_float(*scalar);
    out.is_bool = scalar == Scalar::boolean;
    out.has_axis = key.type.has_dims;
    out.choices = graph::choices_of(key);
    out.gguf_choices = attribute_texts(key.attributes, "gguf_choices");
    if (out.gguf_choices.empty()) out.gguf_choices = out.choices;
    if (out.gguf_choices.size() != out.choices.size())
      throw error_at(key.place, fmt::format("config key '{}' has {} choices, but {} gguf_choices", key.name,
                                            out.choices.size(), out.gguf_choices.size()));
    out.gguf = attribute_texts(key.attributes, "gguf");
    out.hf = attribute_texts(key.attributes, "hf");
    for (std::string& name : out.gguf) name = filled(std::move(name));
    for (const lang::Attribute& a : key.attributes) {
      if (a.name != "hf_words") continue;
      for (size_t n = 0; n + 1 < a.values.size(); n += 2) out.hf_words[a.values[n]->text] = number_of(a, n + 1);
    }
    const auto members = attribute_texts(key.attributes, "hf_members");
    if (!members.empty()) out.hf_members = members.front();
    if (const auto each = attribute_texts(key.attributes, "hf_each"); !each.empty()) out.hf_each = each.front();
    if (const auto letters = attribute_texts(key.attributes, "hf_letters"); letters.size() == 2) {
      out.hf_letters = letters[0];
      out.hf_letter = letters[1];
    }
    const auto length = attribute_texts(key.attributes, "gguf_length");
    if (!length.empty()) out.gguf_length = length.front();
    for (const lang::Attribute& a : key.attributes) {
      if (a.name == "gguf_plus") out.gguf_plus = attribute_texts({a}, a.name, 1).at(0);
      if (a.name == "gguf_largest") out.gguf_largest = true;
      if (a.name == "gguf_times") out.gguf_times = number_of(a, 0);
      if (a.name == "gguf_else") out.gguf_else = number_of(a, 0);
      if (a.name == "gguf_tensor") out.gguf_tensor = attribute_texts({a}, a.name, 1).at(0);
    }
    keys_.push_back(std::move(out));
  }
}

std::vector<std::string> Family::ignored(bool hf, const graph::Config& config) const {
  std::vector<std::string> out;
  for (const std::string& pattern : hf ? hf_ignored_ : gguf_ignored_) {
    const size_t begin = pattern.find('{'), end = pattern.find('}', begin);
    if (end == std::string::npos) {
      out.push_back(pattern);
      continue;
    }
    const auto number = [&](const std::string& key) {
      const auto value = config.find(key);
      LUMEN_CHECK(value != config.end(), "{} ignores '{}'", decl_.name, pattern);
      return int64_t(value->second);
    };
    const std::string inside = pattern.substr(begin + 1, end - begin - 1);
    const size_t dots = inside.find("..");
    const int64_t first = number(inside.substr(0, dots));
    const int64_t limit = dots == std::string::npos ? first + 1 : number(inside.substr(dots + 2));
    for (int64_t n = first; n < limit; ++n)
      out.push_back(pattern.substr(0, begin) + std::to_string(n) + pattern.substr(end + 1));
  }
  return out;
}

bool Family::accepts_gguf(double value) const {
  return gguf_value_ ? value == *gguf_value_ : value != 0;
}

bool Family::is_used(const ConfigKey& key, const graph::Config& config, bool gguf) const {
  for (const lang::ConfigKey& k : decl_.config) {
    if (k.name != key.name) continue;
    for (const lang::Attribute& a : k.attributes) {
      if (a.name != "when" && !(gguf && a.name == "gguf_when")) continue;
      if (a.values.size() != 1) throw error_at(a.place, "'when' needs one condition");
      if (graph::config_number(decl_, *a.values[0], config) == 0) return false;
    }
  }
  return true;
}

std::vector<std::string> Family::sizes() const {
  std::vector<std::string> names;
  for (const lang::SizeDecl& size : decl_.sizes)
    if (size.name != "config.json") names.push_back(size.name);  // config_rules.h
  return names;
}

bool Family::has_function(const std::string& function) const {
  return std::any_of(decl_.functions.begin(), decl_.functions.end(),
                     [&](const lang::Function& f) { return f.name == function; });
}

graph::Config Family::config(const std::string& size, const graph::Config& values) const {
  graph::Config config = graph::model_config(decl_, size, values);
  // Rounded as files store them: reading a written file gives the same model.
  for (const ConfigKey& key : keys_) {
    if (!key.is_float) continue;
    for (const std::string& name : key.entries(config)) config.at(name) = static_cast<float>(config.at(name));
  }
  return config;
}

std::vector<Parameter> Family::parameters(const graph::Config& config) const {
  std::vector<Parameter> out = all_parameters(config);
  std::erase_if(out, [&](const Parameter& p) { return !p.absent_if.empty() && config.at(p.absent_if) != 0; });
  return out;
}

std::vector<Parameter> Family::all_parameters(const graph::Config& config) const {
  // The attributes of "layers.3.wq" are those of the layer parameter "wq".
  const auto find_decl = [&](const std::string& name) -> const lang::ModelParam* {
    for (const lang::ModelParam& p : decl_.params) {
      if (p.name == name) return &p;
    }
    const std::string last = name.substr(name.rfind('.') + 1);
    for (const lang::ModelParam& p : decl_.layer_params) {
      if (p.name == last) return &p;
    }
    return nullptr;
  };
  std::vector<Parameter> out;
  for (graph::ModelParameter& p : graph::model_parameters(library_->scope(), decl_, config)) {
    Parameter parameter;
    static_cast<graph::ModelParameter&>(parameter) = std::move(p);
    const lang::ModelParam* decl = find_decl(parameter.name);
    LUMEN_CHECK(decl, "parameter {} without a declaration", parameter.name);
    parameter.decays = !parameter.is_vector();
    for (const lang::Attribute& a : decl->attributes) {
      if (a.name == "frozen") parameter.frozen = true;
      if (a.name == "hf_transposed") parameter.hf_transposed = true;
      if (a.name == "hf_packed") parameter.hf_packed = true;
      if (a.name == "hf_plus") parameter.hf_plus = number_of(a, 0);
      if (a.name == "gguf_minus_exp") parameter.gguf_minus_exp = true;
      if (a.name == "hf_scalar") parameter.hf_scalar = true;
      if (a.name == "gguf_key") {
        parameter.gguf_key = attribute_texts({a}, a.name, 1).at(0);
        if (const std::string layer = layer_in(parameter.name); !layer.empty())
          parameter.gguf_place = std::stoull(layer);
      }
      if ((a.name == "hf_scalar" || a.name == "gguf_key") && parameter.count() != 1)
        throw error_at(a.place, fmt::format("{} is for parameters of one number", a.name));
      if (a.name == "hf_shape") {
        for (const lang::ExprPtr& value : a.values)
          parameter.hf_shape.emplace_back(int64_t(graph::config_number(decl_, *value, config)));
      }
      if (a.name == "hf_grouped" || a.name == "hf_grouped_columns") {
        const auto count = [&](size_t value) {
          if (value >= a.values.size()) throw error_at(a.place, fmt::format("{} needs three numbers", a.name));
          return int64_t(graph::config_number(decl_, *a.values[value], config));
        };
        parameter.hf_grouped_from = count(0);
        parameter.hf_groups = count(1);
        parameter.hf_members = count(2);
        parameter.hf_grouped_columns = a.name == "hf_grouped_columns";
      }
      if (a.name == "hf_rows" || a.name == "hf_columns") read_ranges(decl_, a, config, parameter);
      if (a.name == "hf_fused") {
        parameter.hf_fused = layer_filled(attribute_texts({a}, "hf_fused", 1).at(0), parameter.name);
        parameter.hf_part = static_cast<int64_t>(number_of(a, 1));
        parameter.hf_parts = static_cast<int64_t>(number_of(a, 2));
      }
    }
    if (!parameter.hf_shape.empty()) {
      const int64_t said = graph::elements(parameter.hf_shape).number(), count = parameter.count();
      const int64_t stored = parameter.hf_rows.empty() ? count : count / parameter.hf_count * parameter.hf_of;
      if (said != stored)
        throw error_at(decl->place, fmt::format("hf_shape has {} elements, but what is stored of the parameter has {}",
                                                said, stored));
    }
    // Both attributes name config keys.
    const auto key_of = [&](std::string_view attribute, size_t value) -> std::string {
      const auto names = attribute_texts(decl->attributes, attribute);
      if (names.size() <= value) return "";
      if (!config.contains(names[value])) {
        throw error_at(decl->place, fmt::format("{} names no config key: '{}'", attribute, names[value]));
      }
      return names[value];
    };
    parameter.absent_if = key_of("absent_if", 0);
    if (const std::string key = key_of("hf_halves", 0); !key.empty()) {
      parameter.hf_halves = static_cast<int64_t>(config.at(key));
    }
    if (const std::string key = key_of("hf_halves", 1); !key.empty()) {
      parameter.hf_turned = static_cast<int64_t>(config.at(key));
    }
    out.push_back(std::move(parameter));
  }
  return out;
}

graph::Graph Family::function(const std::string& function, const graph::Config& config) const {
  if (!has_function(function)) {
    throw Error(Exit::user, fmt::format("the family '{}' has no function '{}'", decl_.name, function),
                has_function("hidden") && !has_function("step")
                    ? "it computes embeddings (`lumen embed`), and predicts no tokens"
                    : "a family's functions are defined in its .lum file (docs/reference/language.md)");
  }
  graph::Graph g = graph::elaborate_model(library_->scope(), decl_, function, config);
  if (g.results.size() == 1) g.result_names = {kResult};
  return g;
}

}  // namespace lumen::model::arch
