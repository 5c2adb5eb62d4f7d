#include "model/recipe/phases.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "graph/transform/low_rank.h"
#include "model/templates/chat.h"
#include "number/codec/codec.h"
#include "number/formula/scalar.h"

namespace lumen::model::recipe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kState = "phases.json";
constexpr size_t kMostState = size_t{16} << 20;

}  // namespace

PhaseBegin phase_begin(const std::string& name) {
  if (name == "model") return PhaseBegin::model;
  if (name == "adapter") return PhaseBegin::adapter;
  if (name == "merged") return PhaseBegin::merged;
  throw Error(
      Exit::usage, fmt::format("a phase cannot begin with '{}'", name),
      "known: model (the trained weights), adapter (training it continues), merged (it is merged into the base)");
}

Recipe phase_recipe(const Recipe& whole, size_t phase) {
  LUMEN_CHECK(phase < whole.phases.size());
  Recipe base = whole;
  base.phases.clear();
  const Phase& p = whole.phases[phase];
  Recipe out = parse_recipe(p.text, fmt::format("{}, phase '{}'", whole.name, p.name), std::move(base));
  if (phase > 0) {  // the model comes from the previous phase
    out.family = out.size = "";
    out.config.clear();
  }
  return out;
}

void check_phases(const Recipe& whole) {
  for (size_t i = 0; i < whole.phases.size(); ++i) {
    const Phase& phase = whole.phases[i];
    const PhaseBegin begin = phase_begin(phase.begin);
    const Recipe recipe = phase_recipe(whole, i);
    check_recipe(recipe);
    const auto refuse = [&](const std::string& why, const std::string& hint) {
      throw Error(Exit::usage, fmt::format("phase '{}' begins with \"{}\", but {}", phase.name, phase.begin, why),
                  hint);
    };
    for (size_t k = 0; k < i; ++k)
      if (whole.phases[k].name == phase.name) throw usage_error("two phases are called '{}'", phase.name);
    if (i == 0) {
      if (begin != PhaseBegin::model) refuse("there is none before it", "the first begins with \"model\"");
      continue;
    }
    const Recipe before = phase_recipe(whole, i - 1);
    const std::string& last = whole.phases[i - 1].name;
    if (begin == PhaseBegin::model && before.adapter.trains())
      refuse(fmt::format("'{}' trains an adapter", last), "begin = \"adapter\" continues it, \"merged\" merges it");
    if (begin != PhaseBegin::model && !before.adapter.trains())
      refuse(fmt::format("'{}' trains no adapter", last), "begin = \"model\"");
    const auto shape = [](const Recipe& r) {
      const AdapterSettings& a = r.adapter;
      return std::tuple(a.method, a.rank, a.scale(), a.targets);
    };
    if (begin == PhaseBegin::adapter && shape(before) != shape(recipe))
      refuse(fmt::format("its adapter has another method, rank, alpha or targets than that of '{}'", last),
             "leave them as they are, or begin with \"merged\"");
  }
}

void make_absolute(Recipe& whole) {
  // One path, or several separated by commas.
  const auto absolute = [](std::string& paths) {
    std::error_code error;
    std::string out;
    for (size_t at = 0; at < paths.size();) {
      const size_t comma = fs::exists(paths, error) ? paths.size() : std::min(paths.find(',', at), paths.size());
      const std::string path = paths.substr(at, comma - at);
      const bool is_there = !path.empty() && fs::exists(path, error);
      out += (at > 0 ? "," : "") + (is_there ? fs::absolute(path).lexically_normal().string() : path);
      at = comma + 1;
    }
    paths = out;
  };
  Recipe base = whole;
  base.phases.clear();
  for (size_t i = 0; i < whole.phases.size(); ++i) {
    Phase& phase = whole.phases[i];
    Recipe own = parse_recipe(phase.text, phase.name, base);
    for (std::string* path : {&own.data, &own.validation_data, &own.eval_data, &own.tokenizer, &own.objective.teacher})
      absolute(*path);
    if (templates::is_template_file(own.chat_template)) absolute(own.chat_template);
    phase.text = changed_values(base, own);
  }
}

arch::Adapter adapter_of(const arch::Model& model, const file::Checkpoint& checkpoint) {
  const Recipe recipe = parse_recipe(checkpoint.state.config, checkpoint.folder.string());
  arch::Adapter out;
  out.name = model.name;
  const auto numbers = [&](const file::StoredTensor& t) {
    const std::vector<uint8_t> bytes = t.blob();
    graph::Shape shape;
    for (const int64_t d : t.shape) shape.emplace_back(d);
    const FormatRef format =
        t.element.format ? t.element.format : model.family->library().formats().get(scalar_name(t.element.scalar));
    const std::vector<float> values = decode(*format, bytes, t.rows(), t.columns());
    return arch::f32_weight(shape, values);
  };
  const auto find = [&](const std::string& name) -> const file::StoredTensor* {
    for (const file::StoredTensor& t : checkpoint.weights->tensors())
      if (t.name == name) return &t;
    return nullptr;
  };
  for (const arch::Parameter& p : model.parameters) {
    const file::StoredTensor *a = find(graph::low_rank_a(p.name)), *b = find(graph::low_rank_b(p.name));
    if (!a || !b) continue;
    arch::AdapterPart part{numbers(*a), numbers(*b), recipe.adapter.scale()};
    if (const file::StoredTensor* m = find(graph::low_rank_magnitude(p.name))) part.magnitude = numbers(*m);
    out.parts.emplace(p.name, std::move(part));
  }
  if (out.parts.empty()) throw user_error("{} holds no adapter", checkpoint.folder.string());
  return out;
}

fs::path phase_folder(const fs::path& run, const Recipe& whole, size_t phase) {
  std::string name;
  for (const char c : whole.phases.at(phase).name)
    name += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ? c : '-';
  return run / fmt::format("{}-{}", phase + 1, name);
}

void write_phases(const fs::path& run, const PhasesState& state) {
  const nlohmann::json text = {{"recipe", state.recipe}, {"model", state.model}, {"done", state.done}};
  fs::create_directories(run);
  write_file_atomic(run / kState, text.dump(1) + "\n");
}

std::optional<PhasesState> read_phases(const fs::path& run) {
  const fs::path path = run / kState;
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  const nlohmann::json text = parse_json(read_file(path, kMostState), path.string());
  PhasesState state;
  state.recipe = json_text(text, "recipe", path.string());
  state.model = json_text(text, "model", path.string());
  const int64_t done = json_integer(text, "done", path.string());
  if (done < 0) throw user_error("{}: {} phases done", path.string(), done);
  state.done = done;
  return state;
}

}  // namespace lumen::model::recipe
