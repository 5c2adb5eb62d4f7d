#include "model/train/outputs.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/arch/config_file.h"
#include "model/arch/write.h"
#include "model/compress/quantize.h"
#include "model/file/json.h"
#include "model/report/report.h"

namespace lumen::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "model.gguf";
constexpr const char* kRounded = "model-rounded.gguf";
constexpr const char* kAverage = "model-ema.gguf";
constexpr const char* kFolder = "hf";

constexpr size_t kLongestName = 63;  // of a tensor in a GGUF file

// The float format `type` names; null for other formats and mixtures.
FormatRef float_format(const FormatLibrary& formats, const std::string& type) {
  const FormatRef f = formats.find(type);
  if (!f) return nullptr;
  for (const Scalar s : {Scalar::f32, Scalar::f16, Scalar::bf16})
    if (is_plain(*f, s)) return f;
  return nullptr;
}

QuantizeOptions rounding_to(const std::string& type) {
  QuantizeOptions options;
  options.target = type;
  return options;
}

void check_gguf(const Model& model) {
  if (model.family->gguf_architecture().empty())
    throw user_error("the family '{}' has no name in GGUF files", model.family->name());
  for (const Parameter& p : model.parameters) {
    if (p.gguf.empty())
      throw Error(Exit::user,
                  fmt::format("parameter '{}' of '{}' has no name in GGUF files", p.name, model.family->name()),
                  "give it the attribute gguf in the family's text");
    if (p.gguf.size() > kLongestName)
      throw user_error("parameter '{}': GGUF allows names of at most {} bytes", p.name, kLongestName);
    if (p.shape.size() > 4) throw user_error("parameter '{}': GGUF allows at most 4 dimensions", p.name);
  }
  GgufMetadata metadata = model.metadata;
  (void)write_gguf_config(*model.family, model.config, metadata);
  if (model.tokenizer && !metadata.has("tokenizer.ggml.model")) model.tokenizer->to_gguf(metadata);
}

void check_hf(const Model& model, const Recipe& recipe) {
  const bool described = model.files.contains("config.json");
  if (model.family->hf_architectures().empty() && !described) {
    throw Error(Exit::user,
                fmt::format("the family '{}' has no names for a Hugging Face folder (--hf)", model.family->name()),
                "give the family the attribute hf in its text, or train without --hf");
  }
  for (const Parameter& p : model.parameters) {
    if (!p.hf.empty() || !p.hf_rows.empty()) continue;
    if (p.optional && p.frozen) continue;  // decided by its values, which stay
    throw Error(Exit::user, fmt::format("parameter '{}' has values no Hugging Face folder can hold (--hf)", p.name),
                "give it the attribute hf in the family's text, or train without --hf");
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
          "leave one of the two away; `lumen quantize` rounds the trained model later");
  }
}

double count_of(const Model& model) {
  double count = 0;
  for (const Parameter& p : model.parameters) count += static_cast<double>(p.count());
  return count;
}

double adapter_count(const Model& model, const Recipe& recipe) {
  double count = 0;
  const Method method(model, recipe, {});
  for (const Parameter& p : method.trained()) count += static_cast<double>(p.count());
  return count;
}

Model in_type(run::Engine& engine, const Model& model, const std::string& type, int* file_type) {
  const FormatRef format = float_format(model.family->library().formats(), type);
  if (format) return with_floats(engine, model, format);
  QuantizeReport report;
  Model out = quantize(engine, model, rounding_to(type), &report);
  *file_type = report.file_type;
  return out;
}

}  // namespace

void check_outputs(const Model& model, const Recipe& recipe) {
  if (!float_format(model.family->library().formats(), recipe.output_type))
    (void)choose_formats(model, rounding_to(recipe.output_type), nullptr);
  (void)fake_assignments(recipe.quantize, model);
  check_gguf(model);
  if (recipe.hugging_face) check_hf(model, recipe);
}

void require_room(const fs::path& folder, const Model& model, const Recipe& recipe, int64_t kept) {
  const double weights = recipe.adapter.trains() ? adapter_count(model, recipe) : count_of(model);
  const double checkpoint = weights * (param_scalar(recipe.param_type) == Scalar::f32 ? 12 : 10);
  double saves = 1;
  if (recipe.save_every > 0) saves += static_cast<double>(recipe.schedule.steps / recipe.save_every);
  // With a limit the oldest goes when the newest has proved good: one more than the limit at a time.
  if (recipe.keep > 0) saves = std::min(saves, std::max(1.0, static_cast<double>(recipe.keep + 1 - kept)));
  const double models = weights * 4 *
                        (1 + (recipe.quantize.empty() ? 0 : 1) + (recipe.hugging_face ? 1 : 0) +
                         (recipe.optimizer.ema_decay > 0 ? 1 : 0));
  struct statvfs disk{};
  if (::statvfs(folder.c_str(), &disk) != 0) return;  // a file system that does not tell
  const double room = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  if (checkpoint * saves + models <= room) return;
  throw Error(
      Exit::user,
      fmt::format("'{}' has room for {:.2f} GB, but this run writes about {:.2f} GB: {:.0f} checkpoints of {:.2f} "
                  "GB, models of {:.2f} GB",
                  folder.string(), room / 1e9, (checkpoint * saves + models) / 1e9, saves, checkpoint / 1e9,
                  models / 1e9),
      "free some space, name another folder with --out, or keep fewer checkpoints with --keep");
}

std::vector<fs::path> earlier_outputs(const fs::path& folder) {
  std::vector<fs::path> found = list_checkpoints(folder);
  std::error_code error;
  for (const char* name : {kModel, kRounded, kAverage, kFolder, kReportName})
    if (fs::exists(folder / name, error)) found.push_back(folder / name);
  return found;
}

std::vector<std::string> write_outputs(run::Engine& engine, Trainer& trainer, const fs::path& folder) {
  const Recipe& recipe = trainer.recipe();
  if (trainer.has_adapter()) return {};
  int file_type = -1;
  const Model trained = in_type(engine, trainer.model(), recipe.output_type, &file_type);
  std::vector<std::string> lines;
  write_gguf(trained, folder / kModel, file_type);
  lines.push_back(fmt::format("{} ({})", (folder / kModel).string(), recipe.output_type));
  if (!recipe.quantize.empty()) {
    write_gguf(trainer.rounded(), folder / kRounded, static_cast<int>(recipe.file_type));
    lines.push_back(fmt::format("{} (the recipe's formats)", (folder / kRounded).string()));
  }
  if (trainer.has_average()) {
    trainer.exchange_average();
    write_gguf(in_type(engine, trainer.model(), recipe.output_type, &file_type), folder / kAverage, file_type);
    trainer.exchange_average();
    lines.push_back(fmt::format("{} ({}, the mean of the weights)", (folder / kAverage).string(), recipe.output_type));
  }
  if (recipe.hugging_face) {
    write_hf(trained, folder / kFolder);
    lines.push_back(fmt::format("{} ({})", (folder / kFolder).string(), recipe.output_type));
  }
  return lines;
}

}  // namespace lumen::model
