#include "api/model.h"

#include "api/boundary.h"
#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/in_memory.h"

using namespace lumen;  // NOLINT: this file is the C interface and is included by no other

namespace {

std::vector<model::arch::ScaledAdapter> adapters_of(api::Options& options, const model::arch::Model& model) {
  std::vector<model::arch::ScaledAdapter> out;
  const auto given = options.take("adapters");
  if (!given) return out;
  const Error wrong = usage_error("option 'adapters' takes a list of objects {{\"path\": PATH, \"scale\": NUMBER}}");
  if (!given->is_array()) throw wrong;
  for (const auto& entry : *given) {
    if (!entry.is_object()) throw wrong;
    api::Options one(entry.dump().c_str());
    std::string path;
    double scale = 1;
    one.take("path", path);
    one.take("scale", scale);
    one.finish();
    if (path.empty()) throw wrong;
    out.push_back({model::arch::read_adapter(model, path), scale});
    model::arch::require_scale(out.back());
  }
  return out;
}

// Option "mmap": whether the weights stay in the mapped file or are copied into memory.
const model::arch::Model& placed(model::arch::Model& model, api::Place& place, api::Options& options) {
  bool is_mapped = true;
  options.take_setting("model.mmap", is_mapped);
  if (is_mapped) return model;
  if (!place.engine().device().reads_host_memory())
    throw usage_error("option 'mmap' is false for processors alone: a GPU has its own copy of the weights");
  model::arch::copy_into_memory(&model, [](int64_t, int64_t) {});
  return model;
}

model::infer::LoadedModel loaded_at(api::Place& place, const model::arch::Model& model,
                                    std::span<const model::arch::ScaledAdapter> adapters) {
  const api::Place::Work work(place);
  return model::infer::LoadedModel(place.engine(), model, adapters);
}

}  // namespace

lumen_model::lumen_model(std::string path_, api::Options& options)
    : path(std::move(path_)),
      library_(api::library_with_formats(options)),
      model_(model::arch::read_model(library_, path)),
      place(std::make_shared<api::Place>(api::engine_options(options))),
      loaded(loaded_at(*place, placed(model_, *place, options), adapters_of(options, model_))) {
  options.finish();
}

model::infer::Session& lumen_model::session(const model::infer::SessionOptions& options) {
  if (session_ && session_options_.context == options.context && session_options_.exact == options.exact)
    return *session_;
  session_.reset();
  session_.emplace(loaded, options);
  session_options_ = options;
  return *session_;
}

model::infer::Embedder& lumen_model::embedder(const model::infer::EmbedOptions& options) {
  if (!embedder_ || is_embedder_exact_ != options.exact) {
    embedder_.reset();
    embedder_.emplace(loaded, options);
    is_embedder_exact_ = options.exact;
  }
  return *embedder_;
}

const model::text::Tokenizer& lumen_model::tokenizer() const {
  if (!loaded.model().tokenizer) throw user_error("{} has no tokenizer", path);
  return *loaded.model().tokenizer;
}

int api::with_model(lumen_model* model, const std::function<void(lumen_model&)>& work) noexcept {
  return guarded([&] {
    require(model, "model");
    const Place::Work on(*model->place);
    work(*model);
  });
}

extern "C" {

int lumen_model_open(const char* path, const char* options, lumen_model** model) {
  return api::guarded([&] {
    api::require(path, "path");
    api::require(model, "model");
    api::Options given(options);
    *model = new lumen_model(path, given);
  });
}

void lumen_model_close(lumen_model* model) {
  if (!model) return;
  const std::shared_ptr<api::Place> place = model->place;  // arrays may outlive the model
  const api::Place::Work work(*place);
  delete model;
}

int lumen_model_device(lumen_model* model, lumen_device* device) {
  return api::guarded([&] {
    api::require(model, "model");
    api::require(device, "device");
    *device = model->place->device();
  });
}

int lumen_model_info(lumen_model* model, char** json) {
  return api::with_model(model, [&](lumen_model& m) {
    api::require(json, "json");
    const model::arch::Model& about = m.loaded.model();
    nlohmann::ordered_json out;
    out["path"] = m.path;
    out["name"] = about.name;
    out["family"] = about.family->name();
    out["parameters"] = about.weight_count();
    out["bytes"] = about.weight_bytes();
    for (const auto& [name, key] : {std::pair{"vocabulary", "vocab"}, {"context", "context"}, {"layers", "layers"}})
      if (about.config.contains(key)) out[name] = about.integer(key);
    out["has_tokenizer"] = about.tokenizer.has_value();
    if (about.tokenizer) {
      out["chat_template"] = about.tokenizer->chat_template();
      out["end_tokens"] = about.tokenizer->end_of_generation();
      if (const auto bos = about.tokenizer->bos()) out["bos"] = *bos;
    }
    out["functions"] = nlohmann::ordered_json::array();
    for (const char* function : {"step", "forward", "hidden", "loss"})
      if (about.family->has_function(function)) out["functions"].push_back(function);
    out["device"] = m.loaded.engine().device().describe();
    *json = api::handed_over(out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  });
}

}  // extern "C"
