// lumen data preview, lumen data stats
#include <algorithm>
#include <bit>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "cli/train/train_data.h"
#include "model/arch/checkpoint/read.h"
#include "model/text/unicode/unicode.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;
using model::data::ExampleStore;
using model::data::StoredExample;

struct DataFlags {
  std::string model, form = "auto", train_on = "assistant", chat_template;
  std::vector<std::string> data, columns;
  int64_t examples = 3, length = 0;
  bool tokens = false, strict = false, json = false;
};

model::text::Tokenizer tokenizer_of(const Shared& shared, const std::string& path) {
  const std::string ending = fs::path(path).extension().string();
  if (ending == ".json" || ending == ".model" || ending == ".tiktoken") return model::text::Tokenizer::load(path);
  model::arch::Model model = model::arch::read_model(shared.library(), path);
  if (!model.tokenizer) throw user_error("'{}' has no tokenizer", path);
  return *model.tokenizer;
}

// Tokens in the loss are highlighted: by colour on a terminal, by brackets elsewhere.
std::string shown_text(const model::text::Tokenizer& tokenizer, std::span<const uint32_t> tokens) {
  const bool color = output_color();
  const std::string begin = color ? "\x1b[1;32m" : "[", end = color ? "\x1b[0m" : "]";
  std::string out, run;
  bool learned = false;
  // A character may span several tokens, so a run of tokens is decoded as a whole.
  const auto flush = [&] {
    if (!run.empty()) out += (learned ? begin : "") + printable(run, Lines::kept) + (learned ? end : "");
    run.clear();
  };
  for (const uint32_t token : tokens) {
    const bool is_learned = token >= ExampleStore::kLearned;
    if (is_learned != learned) flush();
    learned = is_learned;
    run += tokenizer.bytes(token & ~ExampleStore::kLearned);
  }
  flush();
  return out;
}

std::string shown_tokens(const model::text::Tokenizer& tokenizer, std::span<const uint32_t> tokens) {
  std::string out;
  for (const uint32_t token : tokens) {
    const model::text::TokenId id = token & ~ExampleStore::kLearned;
    out += fmt::format("{:>9} {} {}\n", id, token >= ExampleStore::kLearned ? "learn" : "  -  ",
                       printable(tokenizer.bytes(id)));
  }
  return out;
}

// One JSON object per line.
std::string json_line(const std::string& file, const StoredExample& e, std::span<const uint32_t> tokens) {
  nlohmann::ordered_json line = {{"file", model::text::utf8_repair(file)}, {"line", e.line}};
  for (const uint32_t token : tokens) {
    line["ids"].push_back(token & ~ExampleStore::kLearned);
    line["learned"].push_back(token >= ExampleStore::kLearned ? 1 : 0);
  }
  return line.dump() + "\n";
}

std::string histogram(const ExampleStore& store) {
  std::map<int, uint64_t> counts;
  for (const StoredExample& e : store.examples()) ++counts[std::bit_width(e.length - 1)];
  uint64_t most = 1;
  for (const auto& [bits, count] : counts) most = std::max(most, count);
  std::string out = "tokens of an example\n";
  for (int bits = counts.begin()->first; bits <= counts.rbegin()->first; ++bits) {
    const uint64_t count = counts.contains(bits) ? counts[bits] : 0;
    const size_t marks = (count * 40 + most - 1) / most;
    out += fmt::format("  up to {:>8} {:>9} {}\n", uint64_t{1} << bits, count, std::string(marks, '#'));
  }
  return out;
}

std::string summary(const ExampleStore& store, int64_t length) {
  uint64_t learned = 0, longer = 0;
  std::vector<uint32_t> lengths;
  for (const StoredExample& e : store.examples()) {
    learned += e.learned;
    longer += length > 0 && e.length > length + 1;
    lengths.push_back(e.length);
  }
  std::sort(lengths.begin(), lengths.end());
  const auto at = [&](double share) { return lengths[static_cast<size_t>(share * (lengths.size() - 1))]; };
  const double all = store.token_count();
  std::string out = fmt::format("{} examples, {} tokens, {} of them learned ({:.1f} %)\n", store.examples().size(),
                                store.token_count(), learned, 100 * static_cast<double>(learned) / all);
  out += fmt::format("shortest {}, median {}, 95 of 100 up to {}, longest {}\n", lengths.front(), at(0.5), at(0.95),
                     lengths.back());
  if (length > 0) out += fmt::format("{} longer than a window of {}\n", longer, length);
  return out + histogram(store);
}

int show(const Shared& shared, const DataFlags& flags) {
  const model::text::Tokenizer tokenizer = tokenizer_of(shared, flags.model);
  model::data::ReadOptions options;
  options.form = flags.form;
  options.columns = model::data::read_columns(flags.columns);
  options.train_on = model::data::train_on(flags.train_on);
  options.chat = model::templates::choose_template(flags.chat_template, tokenizer);
  options.cache = data_cache(shared);
  for (const std::string& data : flags.data) {
    const auto loaded = model::data::load_examples(model::data::data_files(data), tokenizer, options);
    const ExampleStore& store = *loaded.store;
    const auto count = std::min<size_t>(store.examples().size(), flags.examples);
    for (const StoredExample& e : store.examples().first(count)) {
      if (flags.json) {
        put_text(json_line(loaded.files[e.file].path, e, store.tokens(e)));
        continue;
      }
      std::string kind;
      if (store.form() == model::data::RowForm::pairs)
        kind = (&e - store.examples().data()) % 2 == 0 ? ", chosen" : ", rejected";
      if (store.form() == model::data::RowForm::labels)
        kind = (e.flags & StoredExample::kWanted) != 0 ? ", wanted" : ", not wanted";
      put(fmt::format("--- {}:{}: {} tokens, {} learned{}\n", loaded.files[e.file].path, e.line, e.length, e.learned,
                      kind));
      const auto tokens = store.tokens(e);
      put_coloured((flags.tokens ? shown_tokens(tokenizer, tokens) : shown_text(tokenizer, tokens)) + "\n");
    }
    if (flags.json) continue;
    put(fmt::format("{}{}: template '{}', learned: {}\n", count > 0 ? "---\n" : "", data, options.chat.name,
                    flags.train_on));
    put(summary(store, flags.length));
    put(store.report().table());
    if (flags.strict && store.report().dropped() > 0)
      throw user_error("{}: {} rows cannot be used", data, store.report().dropped());
  }
  return 0;
}

void add(CLI::App& above, Command& command, const char* name, const char* help, int64_t examples) {
  auto flags = std::make_shared<DataFlags>();
  flags->examples = examples;
  CLI::App* sub = above.add_subcommand(name, help);
  add_settings(*sub, "--model", flags->model, "--data", flags->data);
  if (examples > 0) {
    add_setting(*sub, "--examples", flags->examples);
    auto* tokens = add_setting(*sub, "--tokens", flags->tokens);
    add_setting(*sub, "--json", flags->json)->excludes(tokens);
  }
  add_settings(*sub, "--form", flags->form, "--columns", flags->columns, "--chat-template", flags->chat_template,
               "--train-on", flags->train_on, "--length", flags->length, "--strict", flags->strict);
  set_action(*sub, command, flags, show);
}

}  // namespace

void add_data(CLI::App& app, Command& command) {
  CLI::App* sub = app.add_subcommand("data",
                                     "Show the data that training would read: tokens, the learned ones, and rows "
                                     "that cannot be used");
  sub->require_subcommand(1);
  add(*sub, command, "preview", "Print examples with the tokens that are learned, and figures of all", 3);
  add(*sub, command, "stats", "Print figures alone", 0);
  sub->footer(
      "Examples:\n"
      "  lumen data preview -m model.gguf --data chats.jsonl -n 3\n"
      "  lumen data preview -m model.gguf --data pairs.csv --columns prompt=Q,completion=A\n"
      "  lumen data stats -m model.gguf --data folder -c 1024");
}

}  // namespace lumen::cli
