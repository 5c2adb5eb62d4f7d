#include "model/arch/checkpoint/wrapped.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace lumen::model {
namespace {

// Tensors of another file under other names.
class RenamedTensors : public TensorFile {
 public:
  RenamedTensors(std::shared_ptr<const TensorFile> file, std::vector<StoredTensor> tensors, const std::string& name)
      : file_(std::move(file)) {
    tensors_ = std::move(tensors);
    index(name);
  }

 private:
  std::shared_ptr<const TensorFile> file_;  // owns the bytes
};

}  // namespace

nlohmann::json config_inside(const Family& family, const nlohmann::json& config, const std::string& file) {
  const Family::Inside& inside = *family.inside();
  const auto object = config.find(inside.object);
  if (object == config.end() || !object->is_object())
    throw user_error("{}: \"{}\" is not an object, but {} has its text part there", file, inside.object,
                     inside.architecture);
  nlohmann::json out = *object;
  for (const char* shared :
       {"dtype", "torch_dtype", "bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings"})
    if (const auto value = config.find(shared); value != config.end() && !out.contains(shared)) out[shared] = *value;
  out["architectures"] = {family.hf_architectures().front()};
  out["model_type"] = family.hf_type();
  return out;
}

std::shared_ptr<const TensorFile> tensors_inside(const Family& family, std::shared_ptr<const TensorFile> file,
                                                 const std::string& folder) {
  const Family::Inside& inside = *family.inside();
  std::vector<StoredTensor> tensors;
  int64_t aside = 0;
  for (const StoredTensor& t : file->tensors()) {
    if (std::any_of(inside.beside.begin(), inside.beside.end(),
                    [&](const auto& b) { return fits_pattern(b, t.name); })) {
      ++aside;
      continue;
    }
    StoredTensor named = t;
    for (const auto& [theirs, ours] : inside.prefixes) {
      if (!t.name.starts_with(theirs)) continue;
      named.name = ours + t.name.substr(theirs.size());
      break;
    }
    tensors.push_back(std::move(named));
  }
  if (aside > 0)
    warn(fmt::format("{}: only the text part of {} is read; {} tensors of its other parts are skipped", folder,
                     inside.architecture, aside));
  return std::make_shared<const RenamedTensors>(std::move(file), std::move(tensors), folder);
}

}  // namespace lumen::model
