#include "model/data/examples/load.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/log.h"
#include "base/structured/json.h"
#include "base/threads/team.h"
#include "model/data/rows/rows.h"

namespace lumen::model::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr size_t kBlock = 256;         // rows that are tokenized together
constexpr uint64_t kVersion = 2;       // of what tokens are made of rows
constexpr size_t kRowsToLookAt = 100;  // for what a file holds

constexpr Example::Kind kKinds[] = {Example::Kind::text, Example::Kind::chat, Example::Kind::pair,
                                    Example::Kind::label};

// Texts and chats may stand beside each other.
RowForm form_of(Example::Kind kind) {
  if (kind == Example::Kind::pair) return RowForm::pairs;
  return kind == Example::Kind::label ? RowForm::labels : RowForm::sequences;
}

// A template that runs into its limit ends the reading, at this row.
Error placed(const templates::TemplateOverrun& error, const fs::path& file, uint64_t line) {
  return Error(error.code(), fmt::format("{}:{}: {}", file.string(), line, error.what()),
               "--chat-template names another template");
}

// A row's tokens, or why there are none.
struct Tokenized {
  struct Sequence {
    std::vector<uint32_t> tokens;
    uint32_t flags = 0;
  };
  RowForm form = RowForm::sequences;
  std::vector<Sequence> sequences;
  std::string fault, detail;
  std::string cut;  // what of a row that is kept is in none of its sequences
};

class RowTokenizer {
 public:
  RowTokenizer(const text::Tokenizer& tokenizer, const ReadOptions& options)
      : tokenizer_(tokenizer), options_(options), renderer_(tokenizer, options.chat.parse(), template_time) {}

  Tokenized run(DataRow row) const {
    Tokenized out;
    try {
      parse_row(&row);
      if (!row.fault.empty()) throw ShapeFault{row.fault, row.detail};
      const Example example = example_of(row.value, options_.columns);
      out.form = form_of(example.kind);
      if (options_.form != "auto" && options_.form != example_kind_name(example.kind))
        throw ShapeFault{fmt::format("not of {}, but of {}", options_.form, example_kind_name(example.kind)), ""};
      switch (example.kind) {
        case Example::Kind::text:
          put_text(example.text, out);
          break;
        case Example::Kind::chat: {
          const MaskedChat chat =
              mask_chat(renderer_, example.messages, example.more, options_.train_on, example.prompt);
          for (const MaskedTokens& sequence : chat.sequences) put(sequence, 0, out);
          out.cut = chat.cut;
          break;
        }
        case Example::Kind::pair:
          put(mask_answer(renderer_, example.messages, example.more, example.prompt), 0, out);
          put(mask_answer(renderer_, example.rejected, example.more, example.prompt), 0, out);
          break;
        case Example::Kind::label:
          put(mask_answer(renderer_, example.messages, example.more, example.prompt),
              example.wanted ? StoredExample::kWanted : 0, out);
          break;
      }
    } catch (const ShapeFault& fault) {
      out.fault = fault.reason;
      out.detail = fault.detail;
    } catch (const templates::TemplateOverrun&) {
      throw;
    } catch (const Error& error) {
      out.fault = "cannot be tokenized";
      out.detail = error.what();
    }
    return out;
  }

 private:
  void put_text(const std::string& text, Tokenized& out) const {
    MaskedTokens tokens;
    tokens.ids = tokenizer_.encode(text, {.add_special = true});
    const auto eos = tokenizer_.eos();
    if (eos && (tokens.ids.empty() || tokens.ids.back() != *eos)) tokens.ids.push_back(*eos);
    tokens.learned.assign(tokens.ids.size(), 1);
    put(tokens, StoredExample::kText, out);
  }

  static void put(const MaskedTokens& tokens, uint32_t flags, Tokenized& out) {
    if (tokens.ids.size() < 2) throw ShapeFault{"a single token", ""};
    Tokenized::Sequence sequence{{}, flags};
    sequence.tokens.reserve(tokens.ids.size());
    bool learned = false;
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      sequence.tokens.push_back(tokens.ids[i] | (tokens.learned[i] ? ExampleStore::kLearned : 0));
      learned |= i > 0 && tokens.learned[i];
    }
    if (!learned) throw ShapeFault{"no token to learn", ""};
    out.sequences.push_back(std::move(sequence));
  }

  const text::Tokenizer& tokenizer_;
  const ReadOptions& options_;
  templates::ChatRenderer renderer_;
};

// Whatever the tokens depend on.
Hash cache_key(const std::vector<DataFile>& files, const text::Tokenizer& tokenizer, const ReadOptions& options) {
  ordered_json parts = {{"version", kVersion},
                        {"form", options.form},
                        {"columns", options.columns},
                        {"train_on", train_on_name(options.train_on)},
                        {"template", hash_text(options.chat.text).hex()},
                        {"tokenizer", hash_text(tokenizer.to_json()).hex()},
                        {"tokenizer_config", hash_text(tokenizer.to_config_json()).hex()},
                        {"ends", tokenizer.end_of_generation()}};
  for (const DataFile& f : files)
    parts["files"].push_back(
        {{"bytes", f.bytes}, {"hash", f.hash.hex()}});  // wherever they lie and whatever they are called
  return hash_text(parts.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

std::vector<DataFile> hashed(const std::vector<fs::path>& files) {
  std::vector<DataFile> out;
  for (const fs::path& path : files) {
    const MappedFile file(path);
    out.push_back({path.string(), file.bytes().size(), hash_bytes(file.bytes().data(), file.bytes().size())});
  }
  return out;
}

class Loader {
 public:
  Loader(const std::vector<fs::path>& files, const std::vector<std::string>& names, const text::Tokenizer& tokenizer,
         const ReadOptions& options)
      : files_(files), names_(names), rows_(tokenizer, options) {}

  std::shared_ptr<const ExampleStore> run(ExampleWriter& writer) {
    for (uint32_t i = 0; i < files_.size(); ++i) read(i, writer);
    if (report_.kept() == 0) {
      report_.name_files(names_);
      throw Error(Exit::user, fmt::format("{}: no row can be used\n{}", files_.front().string(), report_.table()),
                  "docs/guide/finetune-data.md shows the forms of rows; columns with other names: --columns");
    }
    if (read_ >= 1000) progress_.finish(fmt::format("{} rows read", read_));
    return writer.finish(*form_, report_);
  }

 private:
  void read(uint32_t file, ExampleWriter& writer) {
    const auto reader = open_rows(files_[file]);
    std::vector<DataRow> block;
    for (bool more = true; more;) {
      block.clear();
      DataRow row;
      while (block.size() < kBlock && (more = reader->next(&row))) block.push_back(std::move(row));
      std::vector<Tokenized> made(block.size());
      std::vector<uint64_t> lines;
      for (const DataRow& r : block) lines.push_back(r.line);
      // Rows after one that ran into the template's limit are left alone: each would take as long.
      std::atomic<int64_t> ended = INT64_MAX;
      parallel_for(0, std::ssize(block), {.grain = 4}, [&](int64_t i) {
        if (i > ended) return;
        try {
          made[i] = rows_.run(std::move(block[i]));
        } catch (const templates::TemplateOverrun& error) {
          for (int64_t now = ended; i < now && !ended.compare_exchange_weak(now, i);) {
          }
          throw placed(error, files_[file], lines[i]);
        }
      });
      for (size_t i = 0; i < made.size(); ++i) take(file, lines[i], made[i], writer);
      read_ += made.size();
      if (read_ >= 1000) progress_.update(fmt::format("{} rows read", read_));
    }
  }

  void take(uint32_t file, uint64_t line, const Tokenized& row, ExampleWriter& writer) {
    report_.read();
    const auto drop = [&](const std::string& why, const std::string& detail) {
      report_.drop(why, {std::to_string(file), line, detail});
    };
    if (!row.fault.empty()) return drop(row.fault, row.detail);
    if (!row.cut.empty()) report_.cut(row.cut, {files_[file].filename().string(), line, ""});
    if (!form_) form_ = row.form;
    if (row.form != *form_) return drop("of another kind than the rows before", "");
    for (const Tokenized::Sequence& sequence : row.sequences)
      writer.add(sequence.tokens, {.line = line, .file = file, .flags = sequence.flags});
  }

  const std::vector<fs::path>& files_;
  const std::vector<std::string>& names_;
  RowTokenizer rows_;
  RowReport report_;
  std::optional<RowForm> form_;
  uint64_t read_ = 0;
  Progress progress_;
};

}  // namespace

void check_data_form(const std::string& form) {
  if (form == "auto") return;
  for (const Example::Kind kind : kKinds)
    if (form == example_kind_name(kind)) return;
  throw Error(Exit::usage, fmt::format("data form: '{}' is unknown", form), "auto, texts, chats, pairs or labels");
}

std::vector<fs::path> data_files(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error))
    throw Error(Exit::user, fmt::format("there is no data at '{}'", path.string()),
                "--data names its new place; a resumed run identifies its files by content");
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const fs::path& file : list_below(path))
    if (fs::is_regular_file(file) && is_row_file(file)) files.push_back(file);
  std::sort(files.begin(), files.end());
  if (files.empty()) throw user_error("'{}' holds no file of data", path.string());
  return files;
}

std::optional<Example::Kind> kind_of_rows(const std::vector<fs::path>& files,
                                          const std::map<std::string, std::string>& columns) {
  std::optional<Example::Kind> found;
  for (const fs::path& file : files) {
    const auto reader = open_rows(file);
    DataRow row;
    for (size_t i = 0; i < kRowsToLookAt && reader->next(&row); ++i) {
      try {
        parse_row(&row);
        if (!row.fault.empty()) continue;
        const Example::Kind kind = example_of(row.value, columns).kind;
        if (kind != Example::Kind::text) return kind;
        found = kind;
        if (file.extension() == ".jsonl") break;
      } catch (const ShapeFault&) {
      }
    }
  }
  return found;
}

LoadedExamples load_examples(const std::vector<fs::path>& files, const text::Tokenizer& tokenizer,
                             const ReadOptions& options) {
  check_data_form(options.form);
  LoadedExamples out;
  out.files = hashed(files);
  std::vector<std::string> names;
  for (const fs::path& file : files) names.push_back(file.filename().string());
  const Hash key = cache_key(out.files, tokenizer, options);
  if (options.cache) {
    out.store = ExampleStore::open(*options.cache, key, names);
    out.from_cache = out.store != nullptr;
    if (out.store) return out;
  }
  ExampleWriter writer(options.cache.get(), key, names);
  out.store = Loader(files, names, tokenizer, options).run(writer);
  return out;
}

std::vector<std::string> documents_of_rows(const std::vector<fs::path>& files, const ReadOptions& options,
                                           RowReport* report) {
  std::vector<std::string> out;
  // There is no vocabulary yet, and no control token.
  const templates::ChatRenderer renderer(text::Tokenizer::characters(" "), options.chat.parse(), template_time);
  for (const fs::path& file : files) {
    const auto reader = open_rows(file);
    for (DataRow row; reader->next(&row);) {
      report->read();
      const auto drop = [&](const std::string& why, const std::string& detail) {
        report->drop(why, {file.filename().string(), row.line, detail});
      };
      try {
        parse_row(&row);
        if (!row.fault.empty()) {
          drop(row.fault, row.detail);
          continue;
        }
        const Example example = example_of(row.value, options.columns);
        if (example.kind == Example::Kind::text) {
          out.push_back(example.text);
          continue;
        }
        // All of a row or nothing: a row that is counted as dropped gives no text.
        std::vector<std::string> printed;
        for (const ordered_json* messages : {&example.messages, &example.rejected}) {
          if (messages->empty()) continue;
          printed.push_back(renderer.render(renderer.mark(*messages, example.more), {}).text);
        }
        out.insert(out.end(), printed.begin(), printed.end());
      } catch (const ShapeFault& fault) {
        drop(fault.reason, fault.detail);
      } catch (const templates::TemplateOverrun& error) {
        throw placed(error, file, row.line);
      } catch (const Error& error) {
        drop("cannot be tokenized", error.what());
      }
    }
  }
  return out;
}

}  // namespace lumen::model::data
