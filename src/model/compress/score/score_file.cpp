#include "model/compress/score/score_file.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/log.h"
#include "graph/ir/text.h"

namespace lumen::model::compress {
namespace {

constexpr const char* kKind = "scores";

}  // namespace

std::string score_key(const std::string& source, const arch::Model& model, const std::vector<std::string>& names,
                      const std::vector<FormatRef>& candidates, std::span<const text::TokenId> text,
                      const ScoreOptions& options) {
  std::string all = fmt::format("{}\n{}\n{} {} {} {}\n", source, model.name, options.run.length, options.run.batch,
                                options.run.bos, options.rows);
  if (options.strategy)
    all += fmt::format("{} {} {}\n", options.strategy->name(), options.numbers.damping, options.numbers.act_order);
  for (const std::string& name : names) all += fmt::format("{} {}\n", name, graph::print(model.weights.at(name).type));
  for (const FormatRef& f : candidates) all += f->hash.hex() + "\n";
  all += hash_bytes(text.data(), text.size_bytes()).hex();
  return hash_text(all).hex();
}

void write_scores(SealedFolder& folder, const std::string& name, const std::string& key,
                  const std::vector<WeightScore>& scores) {
  nlohmann::json all{{"key", key}, {"weights", nlohmann::json::array()}};
  for (const WeightScore& w : scores) {
    nlohmann::json candidates = nlohmann::json::array();
    for (const CandidateScore& c : w.candidates)
      candidates.push_back({{"format", c.format->name}, {"bytes", c.bytes}, {"score", c.score}, {"error", c.error}});
    all["weights"].push_back(
        {{"name", w.name}, {"weights", w.weights}, {"products", w.products}, {"candidates", std::move(candidates)}});
  }
  folder.write(kKind, name, all.dump(), true);
}

std::optional<std::vector<WeightScore>> read_scores(SealedFolder& folder, const std::string& name,
                                                    const std::string& key, const FormatLibrary& formats) {
  const SealedContents kept = folder.map(kKind, name);
  if (kept.state == SealedContents::State::refused)
    warn(fmt::format("'{}' {}: weights are scored again", (folder.path() / kKind / name).string(), kept.why));
  if (!kept.is_whole()) return std::nullopt;
  const nlohmann::json all = nlohmann::json::parse(kept.text(), nullptr, false);
  if (!all.is_object() || !all.contains("key") || all["key"] != key) return std::nullopt;
  std::vector<WeightScore> out;
  try {
    for (const nlohmann::json& w : all.at("weights")) {
      WeightScore& to = out.emplace_back();
      to.name = w.at("name");
      to.weights = w.at("weights");
      to.products = w.at("products");
      for (const nlohmann::json& c : w.at("candidates"))
        to.candidates.push_back(
            {formats.get(c.at("format").get<std::string>()), c.at("bytes"), c.at("score"), c.at("error")});
    }
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // scores are computed again
  }
  return out;
}

}  // namespace lumen::model::compress
