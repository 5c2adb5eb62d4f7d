#include "model/train/loop/outputs.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/file/protected.h"
#include "base/printable.h"
#include "base/structured/json.h"
#include "model/arch/adapter/adapter_write.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/arch/family/config_file.h"
#include "model/compress/merge.h"
#include "model/compress/quantize.h"
#include "model/infer/measure/perplexity_divergence.h"
#include "model/recipe/record/provenance.h"
#include "model/report/report.h"
#include "model/train/adapter_init/adapter_init.h"
#include "model/train/loop/loop.h"
#include "run/engine/stages.h"

namespace lumen::model::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRounded = "model-rounded.gguf";
constexpr const char* kAverage = "model-ema.gguf";
constexpr const char* kFolder = "hf";
constexpr const char* kAdapter = "adapter";
constexpr const char* kAdapterGguf = "adapter.gguf";
constexpr const char* kPlain = "adapter-plain";  // the same, for the model as it was given
constexpr const char* kPlainGguf = "adapter-plain.gguf";
constexpr const char* kOutputs[] = {
    recipe::kModelFile,  kRounded,        kAverage, kFolder, kAdapter, kAdapterGguf, kPlain, kPlainGguf,
    report::kReportName, recipe::kRunFile};

constexpr int64_t kCheckedRows = 8;  // of the validation data, for checking a merged model

constexpr size_t kLongestName = 63;  // of a tensor in a GGUF file

// The float format that `type` names; null for other formats and mixtures.
FormatRef float_format(const FormatLibrary& formats, const std::string& type) {
  const FormatRef f = formats.find(type);
  if (!f) return nullptr;
  for (const Scalar s : {Scalar::f32, Scalar::f16, Scalar::bf16})
    if (arch::is_plain(*f, s)) return f;
  return nullptr;
}

compress::QuantizeOptions rounding_to(const std::string& type) {
  compress::QuantizeOptions options;
  options.target = type;
  return options;
}

void check_gguf(const arch::Model& model) {
  if (model.family->gguf_architecture().empty())
    throw user_error("the family '{}' has no name in GGUF files", model.family->name());
  for (const arch::Parameter& p : model.parameters) {
    if (p.gguf.empty())
      throw Error(Exit::user,
                  fmt::format("parameter '{}' of '{}' has no name in GGUF files", p.name, model.family->name()),
                  "give it the attribute gguf in the family's source");
    if (p.gguf.size() > kLongestName)
      throw user_error("parameter '{}': GGUF allows names of at most {} bytes", p.name, kLongestName);
    if (p.shape.size() > 4) throw user_error("parameter '{}': GGUF allows at most 4 dimensions", p.name);
  }
  file::GgufMetadata metadata = model.metadata;
  (void)write_gguf_config(*model.family, model.config, metadata);
  if (model.tokenizer && !metadata.has("tokenizer.ggml.model")) model.tokenizer->to_gguf(metadata);
}

void check_hf(const arch::Model& model, const recipe::Recipe& recipe) {
  const bool described = model.files.contains("config.json");
  if (model.family->hf_architectures().empty() && !described) {
    throw Error(Exit::user,
                fmt::format("the family '{}' has no names for a Hugging Face folder (--hf)", model.family->name()),
                "give the family the attribute hf in its source, or train without --hf");
  }
  for (const arch::Parameter& p : model.parameters) {
    if (!p.hf.empty() || !p.hf_rows.empty()) continue;
    if (p.optional && p.frozen) continue;  // its values decide whether it is stored, and they do not change
    throw Error(Exit::user, fmt::format("parameter '{}' has values no Hugging Face folder can hold (--hf)", p.name),
                "give it the attribute hf in the family's source, or train without --hf");
  }
  nlohmann::json config = described ? parse_json(model.files.at("config.json"), "config.json") : nlohmann::json();
  if (!config.is_object()) config = nlohmann::json::object();
  write_hf_config(*model.family, model.config, config);
  (void)read_hf_config(*model.family, config, "config.json");
  if (model.tokenizer) {
    (void)model.tokenizer->to_json();
    (void)model.tokenizer->to_config_json();
  }
  if (float_format(model.family->library().formats(), recipe.output_type)) return;
  for (const auto& [name, format] : choose_formats(model, rounding_to(recipe.output_type), nullptr)) {
    if (format->safetensors_type.empty())
      throw Error(
          Exit::usage,
          fmt::format("--output-type {}: '{}' would be held in '{}', which has no place in a Hugging Face folder "
                      "(--hf)",
                      recipe.output_type, name, format->name),
          "leave out one of the two; `lumen quantize` quantizes the trained model later");
  }
}

double count_of(const arch::Model& model) {
  double count = 0;
  for (const arch::Parameter& p : model.parameters) count += p.count();
  return count;
}

double adapter_count(const arch::Model& model, const recipe::Recipe& recipe) {
  double count = 0;
  const Method method(model, recipe, {});
  for (const arch::Parameter& p : method.trained()) count += p.count();
  return count;
}

arch::Model in_type(run::Engine& engine, const arch::Model& model, const std::string& type, int* file_type) {
  const FormatRef format = float_format(model.family->library().formats(), type);
  if (format) return compress::with_floats(engine, model, format);
  compress::QuantizeReport report;
  arch::Model out = quantize(engine, model, rounding_to(type), &report);
  *file_type = report.file_type;
  return out;
}

recipe::Provenance provenance_of(const Trainer& trainer, const arch::Model& model) {
  const recipe::Recipe& recipe = trainer.recipe();
  recipe::Provenance from;
  const Trainer::Origin origin = trainer.origin();
  from.base = origin.place;
  from.base_hash = origin.hash;
  const Trainer::Origin teacher = trainer.taught_by();
  from.teacher = teacher.place;
  from.teacher_hash = teacher.hash;
  from.files = trainer.batches().files();
  for (data::DataFile& f : from.files)
    if (!f.path.empty()) f.path = fs::absolute(f.path).lexically_normal().string();
  from.tokens = trainer.batches().token_hash().hex();
  from.recipe = describe_training(recipe);
  from.formats = recipe::formats_of(model);
  from.compiler = run::compiler_version();
  return from;
}

// The distance of a merged file from the trained model, on the tokens of validation data that count in the loss: what
// fills rows up would count as much as answers otherwise.
infer::Divergence distance(run::Engine& engine, Trainer& trainer, const fs::path& merged, const fs::path& record) {
  const arch::Model base = trainer.model();
  const data::Batches& batches = trainer.batches();
  const data::Batch rows = batches.validation(0, std::min(kCheckedRows, batches.validation_rows()));
  infer::PerplexityOptions options;
  options.length = rows.length;
  options.full = true;
  options.exact = true;
  for (const float weight : rows.weights) options.counted.push_back(weight > 0);
  if (std::ranges::find(options.counted, true) == options.counted.end()) options.counted = {};
  // Both in the precision of the run, so that only weights differ.
  options.products = product_type(trainer.recipe(), base.family->library().formats());
  const std::vector<text::TokenId> text(rows.tokens.begin(), rows.tokens.end());
  infer::LogitsSource source;
  source.vocabulary = base.integer("vocab");
  source.logits = [&](std::span<const text::TokenId> window, std::span<float> out) { trainer.logits(window, out); };
  record_logits(source, text, options, record);
  const arch::Model written = read_gguf(base.family->library().shared_from_this(), merged);
  const infer::LoadedModel loaded(engine, written);
  return divergence(loaded, text, options, record);
}

// The merged model: the trained bytes, or merged weights in the requested type.
void write_merged(run::Engine& engine, Trainer& trainer, const fs::path& path, bool hugging_face) {
  const arch::Model base = trainer.model();
  if (const Shipping* shipping = trainer.shipping()) {
    arch::Model result = base;
    for (auto& [name, w] : result.weights) {
      if (!shipping->is_changed(name)) continue;
      const FormatRef format = shipping->format_of(name);
      w.type.element = {Scalar::f32, format && !arch::is_plain(*format, Scalar::f32) ? format : nullptr};
      w.bytes = {};
    }
    recipe::set_record(result.metadata, record_of(provenance_of(trainer, result)));
    const arch::WeightSource source = [&](const arch::Parameter& p) { return trainer.shipped(p); };
    if (hugging_face)
      write_hf(result, path, source);
    else
      write_gguf(result, path, shipping->file_type(), 0, source);
    return;
  }
  const std::vector<arch::ScaledAdapter> adapters = {{trainer.adapter()}};
  compress::MergeOptions options;
  options.type = trainer.recipe().merge;
  options.hugging_face = hugging_face;
  options.record = record_of(provenance_of(trainer, base));
  (void)compress::Merge(engine, base, adapters, options).write(path);
}

std::vector<Output> write_adapter_outputs(run::Engine& engine, Trainer& trainer, const fs::path& folder) {
  const recipe::Recipe& recipe = trainer.recipe();
  const arch::Model base = trainer.model();
  const arch::Adapter adapter = trainer.adapter();
  arch::AdapterFile about;
  about.base = recipe.base;
  if (trainer.batches().has_chats() && base.tokenizer) about.chat_template = base.tokenizer->chat_template();
  about.record = record_of(provenance_of(trainer, base));
  std::vector<Output> outputs;
  // Such files cannot hold fields and magnitudes of groups.
  const Shipping* shipping = trainer.shipping();
  const bool alone = !shipping || shipping->parameters().empty();
  const auto write_both = [&](const arch::Adapter& one, const arch::AdapterFile& what, const char* name,
                              const char* gguf) {
    const auto try_to = [&](const fs::path& path, const char* kind, const auto& check, const auto& write) {
      try {
        check();
      } catch (const Error& error) {
        outputs.push_back({{}, fmt::format("no {}: {}", path.string(), error.what())});
        return;
      }
      write(path);
      outputs.push_back(
          {path, recipe.adapter.changes_base() ? fmt::format("{}, for the base {}", kind, what.base) : kind});
    };
    try_to(
        folder / name, "adapter, PEFT", [&] { check_adapter_folder(base, one); },
        [&](const fs::path& path) { write_adapter_folder(base, one, path, what); });
    try_to(
        folder / gguf, "adapter, GGUF", [&] { check_adapter_gguf(base, one); },
        [&](const fs::path& path) { write_adapter_gguf(base, one, path, what); });
  };
  if (alone) {
    std::optional<InitialAdapter> began;
    if (recipe.adapter.changes_base() && residual_base(folder))
      began = read_initial_adapter(base, trainer.changes(), folder);
    arch::AdapterFile own = about;
    if (began)
      own.record["lumen.rewritten"] =
          fmt::format("{} of {}", recipe.adapter.init, fs::path(began->base).filename().string());
    write_both(adapter, own, kAdapter, kAdapterGguf);
    if (began) {
      if (const auto plain = adapter_for_given_base(base, adapter, began->adapter, recipe.adapter)) {
        arch::AdapterFile given = about;
        given.base = began->base;
        write_both(*plain, given, kPlain, kPlainGguf);
      }
    }
  } else {
    outputs.push_back({{}, "no adapter: what was learned of the formats is in the merged model alone"});
  }
  if (!shipping && recipe.merge.empty()) {
    write_run_file(folder, provenance_of(trainer, base), {kAdapter, kAdapterGguf, kPlain, kPlainGguf, kInitialAdapter});
    return outputs;
  }
  const AtomicFolder unchecked(folder / fmt::format("{}.unchecked", recipe::kModelFile));  // never kept
  const fs::path merged = unchecked.path() / recipe::kModelFile;
  write_merged(engine, trainer, merged, false);
  const infer::Divergence d = distance(engine, trainer, merged, unchecked.path() / "logits");
  const Output written{folder / recipe::kModelFile, "merged, " + (shipping ? recipe.ship.type : recipe.merge), d.mean,
                       d.tokens};
  if (shipping && !(d.mean <= recipe.ship.max_kl))
    throw Error(Exit::verify,
                fmt::format("the merged model differs from the trained one: {}; ship.max_kl is {}",
                            written.divergence(), recipe.ship.max_kl),
                "the adapter is in the checkpoint; `lumen merge` folds it in without this bound");
  move_file(merged, written_path(folder / recipe::kModelFile));
  outputs.push_back(written);
  if (recipe.hugging_face) {
    write_merged(engine, trainer, folder / kFolder, true);
    write_run_file(folder / kFolder, provenance_of(trainer, base), recipe::kFolderFiles);
    outputs.push_back({folder / kFolder, "merged"});
  }
  write_run_file(folder, provenance_of(trainer, base),
                 {recipe::kModelFile, kAdapter, kAdapterGguf, kPlain, kPlainGguf, kInitialAdapter, kFolder});
  return outputs;
}

// A word of a command line as a shell reads it.
std::string shell_word(const std::string& word) {
  const auto is_plain_character = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_@%+=:,./-").find(char(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain_character)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

int64_t bytes_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::max<int64_t>(0, fs::file_size(path, error));
  int64_t sum = 0;
  for (const fs::path& inner : list_folder(path, error)) sum += std::max<int64_t>(0, fs::file_size(inner, error));
  return sum;
}

// The command that runs what came out: the model, or the adapter with its base.
std::string command_of(std::span<const Output> outputs, const std::string& base) {
  const auto find = [&](const char* name) {
    return std::find_if(outputs.begin(), outputs.end(), [&](const Output& o) { return o.path.filename() == name; });
  };
  if (const auto model = find(recipe::kModelFile); model != outputs.end())
    return "lumen chat -m " + shell_word(model->path.string());
  for (const char* name : {kAdapter, kAdapterGguf})
    if (const auto adapter = find(name); adapter != outputs.end())
      return fmt::format("lumen chat -m {} --lora {}", shell_word(base), shell_word(adapter->path.string()));
  return {};
}

}  // namespace

void check_outputs(const arch::Model& model, const recipe::Recipe& recipe) {
  if (!float_format(model.family->library().formats(), recipe.output_type))
    (void)choose_formats(model, rounding_to(recipe.output_type), nullptr);
  (void)fake_assignments(recipe.quantize, model);
  check_gguf(model);
  if (recipe.hugging_face) check_hf(model, recipe);
}

namespace {

// Approximate bytes of one parameter: in its type, with its compensation state.
double held_bytes(const recipe::Recipe& recipe, const FormatLibrary& formats) {
  const recipe::HeldIn held =
      recipe::held_in({recipe.param_type, recipe.param_rounding, recipe.param_compensation}, formats);
  constexpr int64_t kColumns = 4096, kRows = 256;
  const auto bytes = [&](const graph::Element& e) {
    return 1.0 * graph::byte_size({{kRows, kColumns}, e}) / (kRows * kColumns);
  };
  return bytes(held.element) + (held.rest ? bytes(*held.rest) : 0);
}

// Bytes of optimizer states in their formats; for an adapter, whose matrices are made later, two moments.
double states_bytes(const arch::Model& model, const recipe::Recipe& recipe, double weights) {
  constexpr double kMoments = 8;
  if (recipe.adapter.trains()) return kMoments * weights;
  recipe::OptimizerSettings settings = recipe.optimizer;
  settings.held = {};
  return 1.0 * recipe::Optimizer(model.family->library(), settings).state_bytes(model.parameters);
}

}  // namespace

void require_room(const fs::path& folder, const arch::Model& model, const recipe::Recipe& recipe, int64_t kept) {
  const double weights = recipe.adapter.trains() ? adapter_count(model, recipe) : count_of(model);
  const double checkpoint =
      weights * held_bytes(recipe, model.family->library().formats()) + states_bytes(model, recipe, weights);
  double saves = 1;
  if (recipe.save_every > 0) saves += recipe.schedule.steps / recipe.save_every;
  // With a limit the oldest checkpoint is removed once the newest is confirmed: one more than the limit at a time.
  if (recipe.keep > 0) saves = std::min(saves, std::max<double>(1.0, recipe.keep + 1 - kept));
  const bool merges = recipe.ship.ships() || !recipe.merge.empty();
  const double models = (recipe.adapter.trains() && merges ? count_of(model) / weights : 1) * weights * 4 *
                        (1 + (recipe.quantize.empty() ? 0 : 1) + (recipe.hugging_face ? 1 : 0) +
                         (recipe.optimizer.ema_decay > 0 ? 1 : 0));
  struct statvfs disk{};
  if (::statvfs(folder.c_str(), &disk) != 0) return;  // the file system does not report its free space
  const double room = disk.f_bavail * static_cast<double>(disk.f_frsize);
  if (checkpoint * saves + models <= room) return;
  throw Error(Exit::user,
              fmt::format("'{}' has room for {}, but this run writes about {}: {:.0f} checkpoint{} of {}, models of {}",
                          folder.string(), size_text(room), size_text(checkpoint * saves + models), saves,
                          saves == 1 ? "" : "s", size_text(checkpoint), size_text(models)),
              "free some space, name another folder with --out, or keep fewer checkpoints with --keep");
}

std::vector<fs::path> earlier_outputs(const fs::path& folder) {
  std::vector<fs::path> found = file::list_checkpoints(folder);
  std::error_code error;
  for (const char* name : kOutputs)
    if (fs::exists(folder / name, error)) found.push_back(folder / name);
  for (const fs::path& path : residual_base_files(folder)) found.push_back(path);
  return found;
}

void refuse_outputs_over_inputs(const fs::path& folder, bool resumed) {
  std::vector<fs::path> written;
  std::error_code failure;
  for (const char* name : kOutputs) written.push_back(folder / name);
  if (!resumed)
    for (const fs::path& path : residual_base_files(folder)) written.push_back(path);
  constexpr const char* kHint = "name another folder with --out";
  for (const fs::path& path : written) {
    refuse_protected(path, kHint);
    if (!fs::is_directory(path, failure)) continue;
    for (const fs::path& inner : list_folder(path, failure)) refuse_protected(inner, kHint);
  }
}

std::string Output::divergence() const {
  return kl ? fmt::format("KL divergence {:.2e} nats per token from what was trained, over {} tokens", *kl, kl_tokens)
            : std::string();
}

std::string Output::line() const {
  if (path.empty()) return what;
  return fmt::format("{} ({}{}{})", path.string(), what, kl ? "; " : "", divergence());
}

void log_outputs(const fs::path& folder, const Trainer& trainer, std::span<const Output> outputs) {
  std::error_code error;
  if (!fs::exists(folder / report::kMetricsName, error)) return;
  nlohmann::json files = nlohmann::json::array();
  for (const Output& o : outputs) {
    if (o.path.empty()) continue;
    files.push_back({{"path", o.path.string()}, {"what", o.what}, {"bytes", bytes_of(o.path)}});
    if (o.kl) files.back()["kl"] = *o.kl;
  }
  report::MetricsFile::append(
      folder, {{"step", trainer.done()},
               {"outputs", {{"files", files}, {"command", command_of(outputs, trainer.recipe().base)}}}});
  write_run_report(folder);
}

std::vector<Output> write_outputs(run::Engine& engine, Trainer& trainer, const fs::path& folder) {
  const recipe::Recipe& recipe = trainer.recipe();
  if (trainer.has_adapter()) return write_adapter_outputs(engine, trainer, folder);
  int file_type = -1;
  arch::Model trained = in_type(engine, trainer.read_model(), recipe.output_type, &file_type);
  const recipe::Provenance from = provenance_of(trainer, trained);
  recipe::set_record(trained.metadata, record_of(from));
  std::vector<Output> outputs;
  write_gguf(trained, folder / recipe::kModelFile, file_type);
  outputs.push_back({folder / recipe::kModelFile, recipe.output_type});
  if (!recipe.quantize.empty()) {
    arch::Model rounded = trainer.rounded();
    recipe::set_record(rounded.metadata, record_of(provenance_of(trainer, rounded)));
    write_gguf(rounded, folder / kRounded, recipe.file_type);
    outputs.push_back({folder / kRounded, "the recipe's formats"});
  }
  if (trainer.has_average()) {
    trainer.exchange_average();
    arch::Model average = in_type(engine, trainer.read_model(), recipe.output_type, &file_type);
    trainer.exchange_average();
    recipe::set_record(average.metadata, record_of(from));
    write_gguf(average, folder / kAverage, file_type);
    outputs.push_back({folder / kAverage, recipe.output_type + ", the mean of the weights"});
  }
  if (recipe.hugging_face) {
    write_hf(trained, folder / kFolder);
    write_run_file(folder / kFolder, from, recipe::kFolderFiles);
    outputs.push_back({folder / kFolder, recipe.output_type});
  }
  write_run_file(folder, from, {recipe::kModelFile, kRounded, kAverage, kFolder});
  return outputs;
}

}  // namespace lumen::model::train
