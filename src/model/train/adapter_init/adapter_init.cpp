#include "model/train/adapter_init/adapter_init.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "model/arch/adapter/adapter_stack.h"
#include "model/arch/adapter/adapter_sum.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/quantize.h"
#include "model/compress/relative_error.h"
#include "model/file/safetensors.h"
#include "model/linear/decomposition.h"
#include "model/recipe/record/lora_base.h"
#include "model/recipe/record/provenance.h"
#include "model/train/method/lora.h"
#include "model/train/method/method.h"
#include "run/engine/stages.h"

namespace lumen::model::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBaseGguf = "base.gguf";
constexpr const char* kBaseFolder = "base";
constexpr const char* kOwnType = "base";
constexpr const char* kGiven = "lumen.given";  // metadata of kInitialAdapter

bool is_float_format(const FormatRef& format) {
  return !format || arch::is_plain(*format, Scalar::f32) || arch::is_plain(*format, Scalar::f16) ||
         arch::is_plain(*format, Scalar::bf16);
}

// The formats of a residual base, by parameter; null: f32.
std::map<std::string, FormatRef> formats_of_base(const arch::Model& model, const recipe::Recipe& recipe,
                                                 int* file_type) {
  std::map<std::string, FormatRef> out;
  for (const auto& [name, w] : model.weights) out[name] = w.type.element.format;
  if (recipe.adapter.base_type == kOwnType) {
    if (model.metadata.has("general.file_type")) *file_type = model.metadata.integer("general.file_type");
    return out;
  }
  compress::QuantizeOptions options;
  options.target = recipe.adapter.base_type;
  compress::QuantizeReport report;
  for (const auto& [name, format] : choose_formats(model, options, &report)) out[name] = format;
  *file_type = report.file_type;
  return out;
}

linear::DecompositionOptions decomposition_options(const graph::LowRank& change, const recipe::AdapterInit& init) {
  linear::DecompositionOptions options;
  options.rank = change.rank;
  if (init.kind == recipe::AdapterInit::Kind::pissa && init.iterations > 0) options.iterations = init.iterations;
  return options;
}

const graph::LowRank* change_of(const Method& method, const std::string& parameter) {
  for (const graph::LowRank& c : method.changes())
    if (c.weight == parameter) return &c;
  return nullptr;
}

// The model with the types of the new base; residual weights have no bytes.
arch::Model with_formats(const arch::Model& model, const Method& method,
                         const std::map<std::string, FormatRef>& formats, const recipe::Recipe& recipe) {
  arch::Model base = model;
  for (auto& [name, w] : base.weights) {
    const FormatRef format = formats.at(name);
    const FormatRef own = w.type.element.format;
    if (!change_of(method, name) && (own ? format && own->hash == format->hash : !format)) continue;
    if (format && !format->encodes())
      throw Error(Exit::user,
                  fmt::format("'{}' is held in '{}', which can be read but not written, so that {} cannot change it",
                              name, format->name, recipe.adapter.init),
                  "name another format with --lora-base-type");
    w.type.element = {Scalar::f32, format && !arch::is_plain(*format, Scalar::f32) ? format : nullptr};
    w.bytes = {};
  }
  return base;
}

// Memory for changing one weight, in addition to the file's bytes; null `change`: only its format changes. The steps
// are those of ResidualWeight and write_residual_base.
int64_t residual_base_bytes(const arch::Weight& base, const graph::LowRank* change, const recipe::AdapterInit& init) {
  using run::saturating_product, run::saturating_sum;
  const int64_t packed = byte_size(base.type);
  const int64_t floats = saturating_product(base.rows(), saturating_product(base.columns(), sizeof(float)));
  const auto sum = [&](int64_t times_floats, int64_t times_packed, int64_t more = 0) {
    return saturating_sum(saturating_product(times_floats, floats),
                          saturating_sum(saturating_product(times_packed, packed), more));
  };
  const int64_t taken = std::max(sum(2, 0), sum(1, 1));  // decoded, and encoded again
  if (!change) return taken;
  const graph::Shape& shape = base.type.shape;
  const bool stacked = shape.size() != 2;
  const int64_t rows = shape[shape.size() - 2].number(), columns = shape.back().number();
  const int64_t one = stacked ? saturating_product(rows, saturating_product(columns, sizeof(float))) : 0;
  const int64_t decomposition =
      saturating_sum(one, decomposition_bytes(rows, columns, decomposition_options(*change, init)));
  // By then LoftQ also holds the base and its rounding error.
  const int64_t found =
      init.kind == recipe::AdapterInit::Kind::pissa ? sum(1, 0, decomposition) : sum(2, 1, decomposition);
  // The sum of base and adapter is computed, then fetched; the base without an adapter is held at the same time.
  const int64_t compared = std::max(sum(3, 1), sum(2, 2));
  return std::max({taken, found, compared});
}

// Computes the residual of one parameter.
class ResidualWeight {
 public:
  ResidualWeight(run::Engine& engine, const arch::Parameter& p, const graph::LowRank& change,
                 const recipe::AdapterInit& init, uint32_t seed)
      : engine_(engine), p_(p), change_(change), init_(init), seed_(seed) {}

  // The new base's values and the adapter, for an f32 weight. `encode`: encodes values in the base's format.
  arch::Weight run(const arch::Weight& w, const std::function<arch::Weight(std::span<const float>)>& encode,
                   arch::AdapterPart* part) {
    if (init_.kind == recipe::AdapterInit::Kind::pissa) {
      *part = low_rank(w);
      return encode(without(w, *part));
    }
    arch::Weight base = encode(w.f32());
    for (int64_t turn = 1;; ++turn) {
      *part = low_rank(lost(w, base));
      if (turn == init_.iterations) return base;
      base = encode(without(w, *part));
    }
  }

  std::vector<float> without(const arch::Weight& w, const arch::AdapterPart& part, double factor = -1) const {
    arch::Adapter one;
    one.parts.emplace(p_.name, part);
    const arch::ScaledAdapter adapters[] = {{std::move(one), factor}};
    return adapted_values(engine_, p_, w, adapters);
  }

 private:
  arch::Weight lost(const arch::Weight& w, const arch::Weight& base) const {
    std::vector<float> values = compress::values_of(engine_, base);
    for (size_t i = 0; i < values.size(); ++i) values[i] = w.f32()[i] - values[i];
    return arch::f32_weight(w.type.shape, values);
  }

  arch::AdapterPart low_rank(const arch::Weight& w) const {
    if (w.type.shape.size() == 2) return of_matrix(w, 0);
    std::map<int64_t, arch::AdapterPart> matrices;
    for (int64_t e = 0; e < w.type.shape[0].number(); ++e) matrices[e] = of_matrix(matrix_of(w, e), e);
    return stack_matrices(p_, matrices, p_.name);
  }

  arch::AdapterPart of_matrix(const arch::Weight& w, int64_t number) const {
    linear::DecompositionOptions options = decomposition_options(change_, init_);
    options.seed = seed_ + number;
    linear::LowRankPair pair = decompose(engine_, w, change_.scale, options);
    // For an embedding, A and B swap roles.
    if (change_.rows) return {std::move(pair.left), transposed(pair.right), change_.scale};
    return {std::move(pair.right), std::move(pair.left), change_.scale};
  }

  run::Engine& engine_;
  const arch::Parameter& p_;
  const graph::LowRank& change_;
  recipe::AdapterInit init_;
  uint32_t seed_;
};

file::TensorSpec spec_of(const std::string& name, const arch::Weight& w) {
  file::TensorSpec spec;
  spec.name = name;
  for (const graph::Dim& d : w.type.shape) spec.shape.push_back(d.number());
  spec.element = w.type.element;
  return spec;
}

void write_initial_adapter(const fs::path& path, const std::map<std::string, arch::AdapterPart>& parts,
                           const std::string& given) {
  std::vector<std::pair<std::string, const arch::Weight*>> tensors;
  for (const auto& [name, part] : parts) {
    tensors.emplace_back(graph::low_rank_a(name), &part.a);
    tensors.emplace_back(graph::low_rank_b(name), &part.b);
  }
  std::vector<file::TensorSpec> specs;
  for (const auto& [name, w] : tensors) specs.push_back(spec_of(name, *w));
  file::SafetensorsWriter writer(path, {{kGiven, given}}, specs);
  for (const auto& [name, w] : tensors) writer.write({w->bytes.data(), w->bytes.size()});
  writer.commit();
}

// Concatenates along the rank's axis.
arch::Weight joined(const arch::Weight& x, const arch::Weight& y, bool negative, size_t axis) {
  graph::Shape shape = x.type.shape;
  size_t outer = 1, inner = 1;
  for (size_t d = 0; d < axis; ++d) outer *= shape[d].number();
  for (size_t d = axis; d < shape.size(); ++d) inner *= shape[d].number();
  std::vector<float> values;
  values.reserve(2 * outer * inner);
  for (size_t o = 0; o < outer; ++o) {
    const auto a = x.f32().subspan(o * inner, inner), b = y.f32().subspan(o * inner, inner);
    values.insert(values.end(), a.begin(), a.end());
    for (const float v : b) values.push_back(negative ? -v : v);
  }
  shape[axis] = graph::Dim(2 * shape[axis].number());
  return arch::f32_weight(shape, values);
}

}  // namespace

std::optional<fs::path> residual_base(const fs::path& run) {
  std::error_code failure;
  if (!fs::exists(run / kInitialAdapter, failure)) return std::nullopt;
  if (fs::exists(run / kBaseGguf, failure)) return run / kBaseGguf;
  if (fs::exists(run / kBaseFolder / "config.json", failure)) return run / kBaseFolder;
  return std::nullopt;
}

std::vector<fs::path> residual_base_files(const fs::path& run) {
  std::error_code failure;
  std::vector<fs::path> out;
  if (const auto base = residual_base(run)) out.push_back(*base);
  if (fs::exists(run / kInitialAdapter, failure)) out.push_back(run / kInitialAdapter);
  return out;
}

fs::path residual_base_path(const fs::path& run, const arch::Model& model, const recipe::Recipe& recipe) {
  int file_type = -1;
  const auto formats = formats_of_base(model, recipe, &file_type);
  const bool fits = std::all_of(formats.begin(), formats.end(),
                                [](const auto& f) { return !f.second || !f.second->safetensors_type.empty(); });
  return run / (fits && model.files.contains("config.json") ? kBaseFolder : kBaseGguf);
}

arch::Model residual_base_outline(const arch::Model& model, const recipe::Recipe& recipe) {
  int file_type = -1;
  return with_formats(model, Method(model, recipe, {}), formats_of_base(model, recipe, &file_type), recipe);
}

run::MemoryNeeds residual_base_needs(const arch::Model& model, const recipe::Recipe& recipe) {
  const recipe::AdapterInit init = adapter_init(recipe.adapter);
  const Method method(model, recipe, {});
  const arch::Model base = residual_base_outline(model, recipe);
  int64_t parts = 0, most = 0;
  for (const auto& [name, w] : base.weights)
    if (w.bytes.size() == 0) most = std::max(most, residual_base_bytes(w, change_of(method, name), init));
  for (const arch::Parameter& p : method.trained())
    parts = run::saturating_sum(parts, run::saturating_product(p.count(), sizeof(float)));
  // Weights are pages of their file.
  return {{"weights, as they were given", model.weight_bytes(), true},
          {"adapters", parts},
          {"the largest weight that is written anew", most}};
}

std::vector<ResidualTensor> write_residual_base(run::Engine& engine, const arch::Model& model,
                                                const recipe::Recipe& recipe, const fs::path& run,
                                                const std::function<void(const ResidualTensor&)>& progress) {
  const recipe::AdapterInit init = adapter_init(recipe.adapter);
  LUMEN_CHECK(init.kind != recipe::AdapterInit::Kind::plain);
  const Method method(model, recipe, {});
  int file_type = -1;
  const std::map<std::string, FormatRef> formats = formats_of_base(model, recipe, &file_type);
  arch::Model base = with_formats(model, method, formats, recipe);
  std::map<std::string, arch::AdapterPart> parts;
  std::vector<ResidualTensor> lines;
  const arch::WeightSource source = [&](const arch::Parameter& p) {
    const arch::Weight& old = model.weights.at(p.name);
    const graph::Type type = base.weights.at(p.name).type;
    const arch::Weight w = arch::f32_weight(p.shape, compress::values_of(engine, old));
    const auto encode = [&](std::span<const float> values) {
      if (!type.element.format) return arch::f32_weight(type.shape, values);
      arch::Weight out;
      out.type = type;
      out.bytes = engine.encode(type.element.format, values.data(), out.rows(), out.columns());
      return out;
    };
    const graph::LowRank* change = change_of(method, p.name);
    if (!change) return encode(w.f32());
    const uint32_t number = change - method.changes().data();
    ResidualWeight one(engine, p, *change, init, recipe.seed + (number << 12));
    arch::AdapterPart& part = parts[p.name];
    arch::Weight out = one.run(w, encode, &part);
    ResidualTensor line;
    line.name = p.gguf.empty() ? p.name : p.gguf;
    line.format = type.element.format ? type.element.format->name : "f32";
    line.error = compress::relative_error(one.without(out, part, 1), w.f32());
    line.plain = compress::relative_error(compress::values_of(engine, encode(w.f32())), w.f32());
    if (progress) progress(line);
    lines.push_back(std::move(line));
    return out;
  };
  recipe::Provenance from;
  from.base = recipe.base;
  from.base_hash = weights_hash(model).hex();
  from.recipe = describe_training(recipe);
  from.formats = recipe::formats_of(base);
  from.compiler = run::compiler_version();
  recipe::set_record(base.metadata, record_of(from));
  const fs::path path = residual_base_path(run, model, recipe);
  std::error_code failure;
  if (fs::exists(path, failure))
    throw Error(Exit::user,
                fmt::format("'{}' is there already, where {} writes its base", path.string(), recipe.adapter.init),
                "name another folder with --out");
  if (path.extension() == ".gguf") {
    write_gguf(base, path, file_type, 0, source);
  } else {
    write_hf(base, path, source);
    write_run_file(path, from, {"model.safetensors", "config.json"});
  }
  write_initial_adapter(run / kInitialAdapter, parts, recipe.base);
  return lines;
}

std::string residual_text(const std::vector<ResidualTensor>& tensors, const recipe::AdapterSettings& settings) {
  double error = 0, plain = 0;
  for (const ResidualTensor& t : tensors) {
    error += t.error / tensors.size();
    plain += t.plain / tensors.size();
  }
  return fmt::format(
      "{} of {} weights: new base and adapter together are {:.2e} of a weight's size away from it, on average ({:.2e} "
      "without an adapter)",
      settings.init, tensors.size(), error, plain);
}

InitialAdapter read_initial_adapter(const arch::Model& base, const std::vector<graph::LowRank>& changes,
                                    const fs::path& run) {
  const fs::path path = run / kInitialAdapter;
  const file::SafetensorsFile file(path, base.family->library().formats());
  InitialAdapter out;
  out.adapter.name = path.string();
  if (const auto given = file.metadata().find(kGiven); given != file.metadata().end()) out.base = given->second;
  recipe::AdapterSettings settings;
  const std::vector<arch::Parameter> parameters = adapter_parameters(base, changes, settings);
  const auto take = [&](const std::string& name) {
    const auto p =
        std::find_if(parameters.begin(), parameters.end(), [&](const arch::Parameter& x) { return x.name == name; });
    const file::StoredTensor* t = file.find(name);
    std::vector<int64_t> shape;
    for (const graph::Dim& d : p->shape) shape.push_back(d.number());
    if (!t || t->shape != shape || t->element.format || t->element.scalar != Scalar::f32)
      throw user_error("{}: tensor '{}' is missing, or of another shape than the adapter's", path.string(), name);
    const std::vector<uint8_t> bytes = t->blob();
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }))
      throw user_error("{}: tensor '{}' holds values that are not finite", path.string(), name);
    return arch::f32_weight(p->shape, values);
  };
  for (const graph::LowRank& c : changes)
    out.adapter.parts.emplace(
        c.weight, arch::AdapterPart{take(graph::low_rank_a(c.weight)), take(graph::low_rank_b(c.weight)), c.scale});
  return out;
}

std::optional<arch::Adapter> adapter_for_given_base(const arch::Model& base, const arch::Adapter& trained,
                                                    const arch::Adapter& beginning,
                                                    const recipe::AdapterSettings& settings) {
  if (adapter_init(settings).kind != recipe::AdapterInit::Kind::pissa || settings.base_type != kOwnType)
    return std::nullopt;
  arch::Adapter out = trained;
  for (auto& [name, part] : out.parts) {
    const arch::Weight& w = base.weights.at(name);
    const auto begin = beginning.parts.find(name);
    if (begin == beginning.parts.end() || !is_float_format(w.type.element.format)) return std::nullopt;
    const bool rows = is_looked_up(*base.find(name));
    const size_t axes = part.a.type.shape.size();
    part.a = joined(part.a, begin->second.a, false, rows ? 1 : axes - 2);
    part.b = joined(part.b, begin->second.b, true, axes - 1);
  }
  return out;
}

}  // namespace lumen::model::train
