#include "cli/train/train_data.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "model/arch/chat/chat.h"
#include "model/data/rows/document.h"
#include "model/data/rows/file_text.h"
#include "model/data/rows/rows.h"
#include "model/recipe/recipe_keys.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;
using model::data::Example;

// Whether a file is read as one document, or as documents in lines of JSON.
bool is_text_file(const fs::path& path) {
  const std::string ending = path.extension().string();
  return ending == ".txt" || ending == ".md" || ending == ".jsonl" || !model::data::is_row_file(path);
}

bool is_document_file(const fs::path& path) {
  const std::string ending = path.extension().string();
  return ending == ".md" || ending == ".markdown" || ending == ".dlm";
}

std::vector<double> shares(const std::vector<std::string>& mix) {
  std::vector<double> out;
  for (const std::string& share : mix) {
    char* end = nullptr;
    out.push_back(std::strtod(share.c_str(), &end));
    if (end == share.c_str() || *end != 0) throw usage_error("data.mix: '{}' is no number", share);
  }
  return out;
}

void report(const model::data::RowReport& rows, bool strict) {
  if (rows.lines().empty()) return;
  if (strict && rows.dropped() > 0)
    throw Error(Exit::user, "rows that cannot be used\n" + rows.table(), "without --strict they are left out");
  if (rows.dropped() > 0)
    warn(rows.table());
  else
    note(rows.table());
}

}  // namespace

std::string TrainingData::all_text(const std::string& chat_template, model::data::RowReport* report) const {
  std::string out;
  if (documents) {
    for (const std::string& text : documents->contents) out += text;
    return out;
  }
  // The new model has no template of its own yet.
  model::data::ReadOptions as = options;
  as.chat = model::templates::choose_template(chat_template, model::text::Tokenizer::characters(" "));
  for (const auto* side : {&sets, &validation})
    for (const auto& files : *side)
      for (const std::string& text : model::data::documents_of_rows(files, as, report)) out += text;
  return out;
}

std::shared_ptr<SealedFolder> data_cache(const Shared& shared) {
  return run::is_cache_off(shared.cache) ? nullptr : run::open_cache(shared.cache);
}

std::vector<std::string> split_paths(const std::string& text) {
  std::error_code error;
  if (text.empty() || fs::exists(text, error)) return {text};
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) out.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return out;
}

void take_document_settings(TrainFlags& flags) {
  const fs::path path = flags.text("data.path");
  std::error_code error;
  if (flags.resume_given || !is_document_file(path) || !fs::is_regular_file(path, error)) return;
  std::string taken, other;
  const auto name = [](std::string& list, const std::string& key) { list += (list.empty() ? "" : ", ") + key; };
  const model::data::Document document = model::data::read_document(model::data::FileText(path).text());
  for (const auto& [key, value, line] : document.settings) {
    const auto keys = model::recipe::recipe_keys();
    const bool is_key = std::any_of(keys.begin(), keys.end(), [&](const auto& k) { return k.name() == key; });
    if (key == "base") {
      if (!flags.model.empty() || flags.has("model.size") || flags.has("model.family")) continue;
      const fs::path beside = path.parent_path() / value;
      flags.model = !fs::exists(value, error) && fs::exists(beside, error) ? beside.string() : value;
    } else if (key == "method") {
      if (!flags.recipe.empty()) continue;
      flags.recipe = value;
    } else if (is_key) {
      if (flags.has(key)) continue;
      flags.values[key] = value;
    } else {
      name(other, key);
      continue;
    }
    name(taken, key);
  }
  if (!taken.empty()) note(fmt::format("'{}' has training settings: {}", path.string(), taken));
  if (!other.empty())
    note(fmt::format("'{}': these lines at its start are not settings of a run: {}", path.string(), other));
}

TrainingData find_training_data(const model::recipe::Recipe& recipe) {
  TrainingData data;
  data.options.form = recipe.data_form;
  data.options.columns = model::data::read_columns(recipe.columns);
  data.options.train_on = model::data::train_on(recipe.train_on);
  const bool plain = recipe.data_form == "auto" && recipe.columns.empty() && recipe.mix.empty() && recipe.epochs == 0 &&
                     recipe.validation_data.empty();
  if (recipe.data.empty()) {
    if (!plain) throw usage_error("[data] needs files with rows, but names none: add --data");
    data.documents = model::data::embedded_documents();
    return data;
  }
  bool is_text = plain;
  for (const std::string& path : split_paths(recipe.data)) {
    data.sets.push_back(model::data::data_files(path));
    is_text = is_text && std::all_of(data.sets.back().begin(), data.sets.back().end(), is_text_file);
  }
  for (const auto& files : data.sets) {
    // A single file of plain text needs no inspection.
    const bool known = is_text && files.size() == 1 && !model::data::is_row_file(files.front());
    const auto kind =
        known ? std::optional(Example::Kind::text) : model::data::kind_of_rows(files, data.options.columns);
    if (!data.kind || data.kind == Example::Kind::text) data.kind = kind;
  }
  if (is_text && data.sets.size() == 1 && (!data.kind || data.kind == Example::Kind::text)) {
    data.documents = model::data::load_documents(recipe.data);
    return data;
  }
  for (const std::string& path : split_paths(recipe.validation_data))
    if (!path.empty()) data.validation.push_back(model::data::data_files(path));
  if (data.kind)
    note(fmt::format("'{}' holds {}: its rows are trained on as such", recipe.data,
                     model::data::example_kind_name(*data.kind)));
  return data;
}

void choose_template(TrainingData& data, const model::recipe::Recipe& recipe, bool is_resumed,
                     model::arch::Model& model) {
  const std::string own = model.tokenizer->chat_template();
  data.options.chat = model::templates::choose_template(
      is_resumed && !own.empty() ? std::string() : recipe.chat_template, *model.tokenizer);
  if (!data.has_chats()) return;
  if (data.options.chat.text != own)
    note(fmt::format("chats are written by the template '{}'{}; the trained model carries it", data.options.chat.name,
                     recipe.chat_template.empty() ? ", for the model carries none (see --chat-template)" : ""));
  model::arch::take_chat(model, data.options.chat);
}

std::shared_ptr<const model::data::Batches> make_batches(const TrainingData& data,
                                                         const model::text::Tokenizer& tokenizer,
                                                         const model::recipe::Recipe& recipe, int64_t length,
                                                         const std::shared_ptr<SealedFolder>& cache) {
  if (!data.has_rows()) {
    model::data::DatasetOptions options;
    options.validation = recipe.validation;
    auto dataset =
        std::make_shared<model::data::Dataset>(model::data::Dataset::from(*data.documents, tokenizer, options));
    note(fmt::format("{} training and {} validation tokens", dataset->train().size(), dataset->validation().size()));
    return model::data::window_batches(std::move(dataset), recipe.seed, recipe.batch, length, recipe.accumulate);
  }
  model::data::ReadOptions options = data.options;
  options.cache = cache;
  std::vector<model::data::LoadedExamples> training, validation;
  for (const auto& files : data.sets) training.push_back(model::data::load_examples(files, tokenizer, options));
  for (const auto& files : data.validation) validation.push_back(model::data::load_examples(files, tokenizer, options));
  auto batches = std::make_shared<model::data::ExampleBatches>(
      std::move(training), std::move(validation),
      model::data::BatchOptions{.seed = recipe.seed,
                                .rows = recipe.batch,
                                .length = length,
                                .accumulate = recipe.accumulate,
                                .packing = recipe.packing,
                                .overflow = model::data::overflow(recipe.overflow),
                                .validation = recipe.validation,
                                .mix = shares(recipe.mix)});
  report(batches->report(), recipe.strict);
  note(fmt::format("{} rows of {} positions an epoch, {} tokens, {} of them learned; {} rows for validation",
                   batches->epoch_rows(), length, batches->training_tokens(), batches->training_learned(),
                   batches->validation_rows()));
  return batches;
}

std::optional<int64_t> steps_of_epochs(const model::recipe::Recipe& recipe, const model::data::Batches& batches) {
  if (recipe.epochs == 0) return std::nullopt;
  const auto* examples = dynamic_cast<const model::data::ExampleBatches*>(&batches);
  if (!examples) throw usage_error("data.epochs: windows of plain text are drawn at random, without epochs");
  return examples->steps_of(recipe.epochs);
}

}  // namespace lumen::cli
