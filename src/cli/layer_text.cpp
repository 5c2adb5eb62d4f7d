#include "cli/layer_text.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "cli/given_text.h"
#include "cli/paths/paths.h"
#include "model/infer/measure/perplexity.h"
#include "model/train/recipe/recipe.h"

namespace lumen::cli {
namespace {

// The shortest text first, so that each gets an equal part of what is left.
void take_shares(std::vector<std::vector<model::TokenId>>& texts, int64_t windows, int64_t length) {
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return texts[a].size() < texts[b].size(); });
  int64_t left = windows;
  for (int64_t i = 0; i < std::ssize(order); ++i) {
    std::vector<model::TokenId>& text = texts[order[i]];
    const int64_t share = std::max<int64_t>(left / (std::ssize(order) - i), 1);
    text.resize(std::min<size_t>(text.size(), share * length));
    left -= std::min(share, (std::ssize(text) + length - 1) / length);
  }
}

}  // namespace

void LayerTextFlags::add_flags(CLI::App& sub, const char* group) {
  const auto option = [&](const char* name, auto& to, const std::string& help, const char* type) {
    return sub.add_option(name, to, help)->type_name(type)->capture_default_str()->group(group);
  };
  sub.add_option(
         "-f,--file", texts,
         "Text, .jsonl or folder to calibrate on; repeatable, each with a fair share of the windows; without it, "
         "the built-in one")
      ->check(reads(Reads::data))
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->group(group);
  option("-c,--ctx-size", run.length, "Tokens of a window of that text", "N")->check(CLI::Range(4, 1 << 20));
  option("-b,--batch-size", run.batch, "Windows computed at once", "N")->check(CLI::Range(1, 4096));
  option("--chunks", chunks, "Only so many windows; 0 takes all", "N")->check(CLI::NonNegativeNumber);
  option("--bos", bos, "Where BOS stands: front, windows, none (as `lumen perplexity`)", "PLACE")
      ->check(CLI::IsMember({"front", "windows", "none"}));
  option("--calibration-precision", precision, "Float type that operands of products are rounded to while calibrating",
         "TYPE");
}

std::vector<model::TokenId> LayerTextFlags::read(const model::Model& model) {
  std::vector<model::TokenId> all;
  for (const std::vector<model::TokenId>& one : read_each(model)) all.insert(all.end(), one.begin(), one.end());
  return all;
}

std::vector<std::vector<model::TokenId>> LayerTextFlags::read_each(const model::Model& model) {
  if (!model.tokenizer) throw user_error("'{}' has no tokenizer, without which it reads no text", model.name);
  run.products = model::product_type(precision, model.family->library().formats());
  run.bos = model::bos_place(bos) != model::BosPlace::none && model.tokenizer->adds_bos();
  const std::vector<std::string> files = texts.empty() ? std::vector<std::string>{""} : texts;
  std::vector<std::vector<model::TokenId>> out;
  for (const std::string& file : files) {
    const std::string text = learned_text(file, "calibrating on");
    out.push_back(model::perplexity_tokens(*model.tokenizer, text, model::bos_place(bos)));
    const int64_t windows = std::ssize(out.back()) / run.length;
    if (files.size() > 1 && windows == 0)
      throw user_error("'{}' has {} tokens, less than a window of {} (-c)", file, out.back().size(), run.length);
    if (files.size() > 1) out.back().resize(windows * run.length);
  }
  if (chunks > 0) take_shares(out, chunks, run.length);
  return out;
}

std::string LayerTextFlags::names() const {
  return texts.empty() ? "the built-in text" : fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace lumen::cli
