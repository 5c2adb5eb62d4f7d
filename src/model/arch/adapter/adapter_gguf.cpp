// GGUF files: names and row orders are ours.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/arch/adapter/adapter_keys.h"
#include "model/arch/adapter/adapter_tensors.h"
#include "model/file/gguf.h"

namespace lumen::model::arch {

Adapter read_gguf_adapter(const Model& model, const std::filesystem::path& path) {
  const FormatLibrary& formats = model.family->library().formats();
  const file::GgufFile file(path, formats);
  const std::string name = path.string();
  const file::GgufMetadata& m = file.metadata();
  if (m.text("general.type", "model") != "adapter")
    throw Error(Exit::user, fmt::format("{}: this file is a model, not an adapter", name), "give models with -m");
  if (const std::string kind = m.text("adapter.type", "lora"); kind != "lora")
    throw user_error("{}: adapters of the type '{}' are not supported; only 'lora' is", name, kind);
  check_adapter_keys(m, name);
  const std::string& made_for = m.text("general.architecture");
  if (made_for != model.family->gguf_architecture())
    throw user_error("{}: made for models of the architecture '{}', but '{}' has '{}'", name, made_for, model.name,
                     model.family->gguf_architecture());
  const double alpha = m.number("adapter.lora.alpha", 0);
  if (!std::isfinite(alpha)) throw user_error("{}: adapter.lora.alpha is not finite", name);

  Pairs pairs;
  for (const file::StoredTensor& t : file.tensors()) {
    const bool is_a = t.name.ends_with(".lora_a");
    if (!is_a && !t.name.ends_with(".lora_b"))
      throw user_error("{}: tensor '{}' is not part of a low-rank update", name, t.name);
    put_in_pair(pairs, t.name.substr(0, t.name.size() - 7), is_a, t, false, name);
  }
  if (pairs.empty()) throw user_error("{}: no tensors of an adapter", name);
  require_pairs(pairs, name);
  Adapter out;
  out.name = name;
  for (const auto& [target, pair] : pairs) {
    const auto p = std::find_if(model.parameters.begin(), model.parameters.end(),
                                [&](const Parameter& q) { return q.gguf == target; });
    if (p == model.parameters.end()) refuse_target(model, target, name);
    const bool stacked = p->shape.size() == 3 && !is_looked_up(*p);
    if (!stacked) require_matrix(*p, target, name);
    const int64_t count = stacked ? p->shape[0].number() : 0, matrices = std::max<int64_t>(count, 1);
    AdapterPart part;
    part.a = matrix_in(formats, *pair.a, name, count);
    part.b = matrix_in(formats, *pair.b, name, count);
    const int64_t rows = p->shape[p->shape.size() - 2].number(), columns = p->shape.back().number(), rank = part.rank();
    if (is_looked_up(*p)) {
      require_shape(part.a, rows, rank, *pair.a, name);
      require_shape(part.b, columns, rank, *pair.b, name);
    } else {
      require_shape(part.a, matrices * rank, columns, *pair.a, name);
      require_shape(part.b, matrices * rows, rank, *pair.b, name);
    }
    // Without alpha the scale is 1, as in other programs.
    if (alpha != 0) part.scale = alpha / rank;
    out.parts.emplace(p->name, std::move(part));
  }
  return out;
}

}  // namespace lumen::model::arch
