#include "cli/layer_text.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "cli/given_text.h"
#include "cli/settings/declare.h"
#include "model/data/examples/load.h"
#include "model/data/rows/rows.h"
#include "model/infer/measure/perplexity.h"
#include "model/recipe/recipe.h"

namespace lumen::cli {
namespace {

constexpr int64_t kSpare = 8;  // windows

// Allots windows to the shortest document first, so that the others share its unused part equally. Returns some of the
// windows that are left.
std::vector<model::text::TokenId> take_shares(std::vector<std::vector<model::text::TokenId>>& texts, int64_t windows,
                                              int64_t length) {
  std::vector<model::text::TokenId> spare;
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return texts[a].size() < texts[b].size(); });
  int64_t left = windows;
  for (int64_t i = 0; i < std::ssize(order); ++i) {
    std::vector<model::text::TokenId>& text = texts[order[i]];
    const int64_t share = std::max<int64_t>(left / (std::ssize(order) - i), 1);
    const int64_t more = std::min((std::ssize(text) - share * length) / length, kSpare);
    if (more > 0) spare.insert(spare.end(), text.begin() + share * length, text.begin() + (share + more) * length);
    text.resize(std::min<size_t>(text.size(), share * length));
    left -= std::min(share, (std::ssize(text) + length - 1) / length);
  }
  return spare;
}

// Whether the rows of a file or folder are chats or examples rather than plain text.
bool are_chats(const std::string& file) {
  const std::vector<std::filesystem::path> files = model::data::data_files(file);
  if (files.empty() || !std::ranges::all_of(files, model::data::is_row_file)) return false;
  const auto kind = model::data::kind_of_rows(files, {});
  return kind && *kind != model::data::Example::Kind::text;
}

}  // namespace

std::vector<model::text::TokenId> calibration_tokens(const model::arch::Model& model, const std::string& file,
                                                     model::infer::BosPlace place, const std::string& doing) {
  const model::text::Tokenizer& tokenizer = *model.tokenizer;
  if (file.empty() || !are_chats(file))
    return model::infer::perplexity_tokens(tokenizer, learned_text(file, doing), place);
  model::data::ReadOptions options;
  options.train_on = model::data::TrainOn::all;
  options.chat = model::templates::choose_template("", tokenizer);
  const model::data::LoadedExamples loaded =
      model::data::load_examples(model::data::data_files(file), tokenizer, options);
  const model::data::ExampleStore& store = *loaded.store;
  if (const std::string dropped = store.report().table(); !dropped.empty())
    warn(fmt::format("'{}': {} rows are left out:\n{}", file, store.report().dropped(), dropped));
  // In preference pairs every second example is the rejected answer, which is skipped.
  const size_t step = store.form() == model::data::RowForm::pairs ? 2 : 1;
  std::vector<model::text::TokenId> out;
  for (size_t i = 0; i < store.examples().size(); i += step)
    for (const uint32_t token : store.tokens(store.examples()[i]))
      out.push_back(token & ~model::data::ExampleStore::kLearned);
  note(fmt::format("{} '{}': {} chats by the template '{}', {} tokens", doing, file, store.examples().size() / step,
                   options.chat.name, out.size()));
  return out;
}

void LayerTextFlags::add_flags(CLI::App& sub) {
  add_settings(sub, "--file", texts, "--ctx-size", run.length, "--batch-size", run.batch, "--chunks", chunks, "--bos",
               bos, "--calibration-precision", precision);
}

std::vector<model::text::TokenId> LayerTextFlags::read(const model::arch::Model& model) {
  std::vector<model::text::TokenId> all;
  for (const std::vector<model::text::TokenId>& one : read_each(model)) all.insert(all.end(), one.begin(), one.end());
  return all;
}

std::vector<std::vector<model::text::TokenId>> LayerTextFlags::read_each(const model::arch::Model& model) {
  if (!model.tokenizer) throw user_error("'{}' has no tokenizer, which calibration needs", model.name);
  run.products = model::recipe::product_type(precision, model.family->library().formats());
  run.bos = model::infer::bos_place(bos) != model::infer::BosPlace::none && model.tokenizer->adds_bos();
  const std::vector<std::string> files = texts.empty() ? std::vector<std::string>{""} : texts;
  std::vector<std::vector<model::text::TokenId>> out;
  for (const std::string& file : files) {
    out.push_back(calibration_tokens(model, file, model::infer::bos_place(bos), "calibrating on"));
    const int64_t windows = std::ssize(out.back()) / run.length;
    if (files.size() > 1 && windows == 0)
      throw user_error("'{}' has {} tokens, less than a window of {} (-c)", file, out.back().size(), run.length);
    if (files.size() > 1) out.back().resize(windows * run.length);
  }
  if (chunks > 0) spare = take_shares(out, chunks, run.length);
  return out;
}

std::string LayerTextFlags::names() const {
  return texts.empty() ? "the built-in text" : fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace lumen::cli
