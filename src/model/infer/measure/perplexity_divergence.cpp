#include "model/infer/measure/perplexity_divergence.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/threads/team.h"
#include "model/infer/session/finite.h"

namespace lumen::model::infer {
namespace {

constexpr double kMostCode = 65535;
constexpr char kMagic[8] = {'l', 'u', 'm', 'e', 'n', 'k', 'l', '1'};

struct Header {
  char magic[8];
  int64_t vocab, length, first, windows;
};

// The windows' log probabilities, one scored position per row; `row` is called by several threads at once. `number`
// counts rows from the start of the record, `slot` from the start of the window, in the order of a record.
struct ScoredRow {
  int64_t number = 0, slot = 0;
  std::span<const double> logs;
  text::TokenId next = 0;
};
struct RowVisit {
  std::function<void()> begin;  // called once the header is known
  std::function<void(const ScoredRow&)> row;
  std::function<void()> end_of_window = [] {};
  std::function<void(int64_t, int64_t)> progress = {};
};

// Bytes of a record's row: its smallest log probability and the step between codes, then the codes.
size_t row_bytes(const Header& header) {
  return 2 * sizeof(float) + header.vocab * sizeof(uint16_t);
}

int64_t scored_rows(const Header& header) {
  return header.length - 1 - header.first;
}

void log_probabilities(const float* x, std::span<double> logs) {
  const double top = *std::max_element(x, x + logs.size());
  double total = 0;
  for (size_t v = 0; v < logs.size(); ++v) total += std::exp(x[v] - top);
  const double shift = top + std::log(total);
  for (size_t v = 0; v < logs.size(); ++v) logs[v] = x[v] - shift;
}

void each_row(const LogitsSource& source, const std::vector<text::TokenId>& text, const PerplexityOptions& options,
              Header* header, const RowVisit& visit) {
  const int64_t length = options.length;
  if (length < 4) throw usage_error("windows need at least 4 tokens");
  int64_t windows = std::ssize(text) / length;
  if (options.windows > 0) windows = std::min(windows, options.windows);
  if (windows < 1) throw user_error("the text has {} tokens, fewer than one window of {}", text.size(), length);
  *header = {{}, source.vocabulary, length, options.full ? 0 : length / 2, windows};
  std::memcpy(header->magic, kMagic, sizeof kMagic);
  visit.begin();
  const size_t vocab = header->vocab;
  const int64_t rows = scored_rows(*header);
  std::vector<float> logits(length * vocab);
  for (int64_t w = 0; w < windows; ++w) {
    std::vector<int32_t> ids(text.begin() + w * length, text.begin() + (w + 1) * length);
    if (options.bos && source.bos) ids[0] = *source.bos;
    source.logits(ids, logits);
    parallel_for(0, rows, [&](int64_t i) {
      static thread_local std::vector<double> logs;
      logs.resize(vocab);
      const int64_t t = header->first + i;
      log_probabilities(logits.data() + t * vocab, logs);
      visit.row({w * rows + i, i, logs, text[w * length + t + 1]});
    });
    visit.end_of_window();
    if (visit.progress) visit.progress(w + 1, windows);
  }
}

// The logits of a loaded model, for windows of one length.
LogitsSource source_of(const LoadedModel& loaded, const PerplexityOptions& options) {
  const arch::Model& model = loaded.model();
  run::Engine& engine = loaded.engine();
  run::CompileOptions compile;
  compile.assignments = stored_formats(model);
  compile.symbols = {{"B", 1}, {"T", options.length}};
  compile.exact = options.exact;
  compile.products = options.products;
  const auto program = engine.compile(loaded.function("forward"), compile);
  const auto tokens =
      std::make_shared<run::DeviceTensor>(engine.device(), graph::Type{{1, options.length}, {Scalar::i32, nullptr}});
  for (const std::string& name : program->input_names())
    program->bind(name, name == "tokens" ? tokens : loaded.weights().at(name));
  LogitsSource source;
  source.vocabulary = model.integer("vocab");
  if (model.tokenizer) source.bos = model.tokenizer->bos();
  source.logits = [&loaded, program, tokens](std::span<const text::TokenId> window, std::span<float> logits) {
    tokens->upload(window.data(), tokens->bytes());
    program->run();
    program->result(arch::kResult)->download(logits.data(), logits.size_bytes());
    require_finite(loaded, logits, "logits");
  };
  return source;
}

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

double quantile(const std::vector<double>& sorted, double part) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(part * sorted.size()))];
}

}  // namespace

void record_logits(const LoadedModel& loaded, const std::vector<text::TokenId>& text, const PerplexityOptions& options,
                   const std::filesystem::path& file, const std::function<void(int64_t, int64_t)>& progress) {
  record_logits(source_of(loaded, options), text, options, file, progress);
}

void record_logits(const LogitsSource& source, const std::vector<text::TokenId>& text, const PerplexityOptions& options,
                   const std::filesystem::path& file, const std::function<void(int64_t, int64_t)>& progress) {
  AtomicFile out(file);
  Header header{};
  std::string rows;  // of one window
  RowVisit visit;
  visit.begin = [&] {
    out.write(bytes_of(header));
    for (int64_t i = 0; i < header.windows * header.length; ++i) out.write(bytes_of(static_cast<int32_t>(text[i])));
    rows.resize(scored_rows(header) * row_bytes(header));
  };
  visit.row = [&](const ScoredRow& r) {
    const auto [low, high] = std::minmax_element(r.logs.begin(), r.logs.end());
    const auto least = static_cast<float>(*low), step = static_cast<float>((*high - *low) / kMostCode);
    char* at = rows.data() + r.slot * row_bytes(header);
    std::memcpy(at, &least, sizeof least);
    std::memcpy(at + sizeof least, &step, sizeof step);
    at += sizeof least + sizeof step;
    for (const double x : r.logs) {
      const double code = step > 0 ? std::clamp((x - least) / step, 0.0, kMostCode) + 0.5 : 0;
      const uint16_t whole = code;
      std::memcpy(at, &whole, sizeof whole);
      at += sizeof whole;
    }
  };
  visit.end_of_window = [&] { out.write(rows); };
  visit.progress = progress;
  each_row(source, text, options, &header, visit);
  out.commit();
}

namespace {

// A recorded file; its header and text must equal `header` and `text` (Error).
class Record {
 public:
  explicit Record(const std::filesystem::path& file) : file_(file), map_(file) {}
  void require(const Header& header, const std::vector<text::TokenId>& text) {
    const auto bytes = map_.bytes();
    Header recorded{};
    if (bytes.size() < sizeof recorded) ends_early();
    std::memcpy(&recorded, bytes.data(), sizeof recorded);
    if (std::memcmp(recorded.magic, kMagic, sizeof kMagic) != 0)
      throw user_error("{}: this is not a record of logits", file_.string());
    if (recorded.vocab != header.vocab || recorded.length != header.length || recorded.first != header.first ||
        recorded.windows < header.windows) {
      throw user_error("{}: recorded with a vocabulary of {}, {} windows of {} and {} scored", file_.string(),
                       recorded.vocab, recorded.windows, recorded.length,
                       recorded.first == 0 ? "all tokens" : "the second half");
    }
    const size_t left = bytes.size() - sizeof recorded, size = recorded.length * sizeof(int32_t);
    if (recorded.windows > std::ssize(bytes) / recorded.length || left / size < size_t(recorded.windows)) ends_early();
    rows_ = sizeof recorded + recorded.windows * size;
    for (int64_t i = 0; i < header.windows * header.length; ++i) {
      int32_t id = 0;
      std::memcpy(&id, bytes.data() + sizeof recorded + i * sizeof id, sizeof id);
      if (id != text[i]) throw user_error("{}: recorded over another text", file_.string());
    }
    row_bytes_ = row_bytes(header);
    if ((bytes.size() - rows_) / row_bytes_ < size_t(header.windows * scored_rows(header))) ends_early();
  }
  const std::byte* row(int64_t number) const { return map_.bytes().data() + rows_ + number * row_bytes_; }

 private:
  [[noreturn]] void ends_early() const { throw user_error("{}: the record of logits ends too early", file_.string()); }

  const std::filesystem::path file_;
  const MappedFile map_;
  size_t rows_ = 0, row_bytes_ = 0;
};

}  // namespace

Divergence divergence(const LoadedModel& loaded, const std::vector<text::TokenId>& text,
                      const PerplexityOptions& options, const std::filesystem::path& file,
                      const std::function<void(int64_t, int64_t)>& progress) {
  Record record(file);
  Header header{};
  struct Figures {
    double divergence = 0, nats = 0, recorded_nats = 0;
    bool same_top = false, counts = true;
  };
  LUMEN_CHECK(options.counted.empty() || options.counted.size() == text.size());
  std::vector<Figures> window;
  DivergenceSum sum;
  RowVisit visit;
  visit.begin = [&] {
    record.require(header, text);
    window.resize(scored_rows(header));
  };
  visit.row = [&](const ScoredRow& r) {
    float least = 0, step = 0;
    const std::byte* at = record.row(r.number);
    std::memcpy(&least, at, sizeof least);
    std::memcpy(&step, at + sizeof least, sizeof step);
    at += sizeof least + sizeof step;
    const auto code = [&](size_t v) {
      uint16_t out = 0;
      std::memcpy(&out, at + v * sizeof out, sizeof out);
      return out;
    };
    const auto recorded = [&](size_t v) { return least + double{step} * code(v); };
    double kl = 0;
    size_t top = 0, recorded_top = 0;
    for (size_t v = 0; v < r.logs.size(); ++v) {
      const double x = recorded(v);
      kl += std::exp(x) * (x - r.logs[v]);
      if (r.logs[v] > r.logs[top]) top = v;
      if (code(v) > code(recorded_top)) recorded_top = v;
    }
    const int64_t place = r.number / scored_rows(header) * header.length + header.first + r.slot;
    const bool counts = options.counted.empty() || options.counted[place];
    window[r.slot] = {kl, -r.logs[r.next], -recorded(r.next), top == recorded_top, counts};
  };
  visit.end_of_window = [&] {
    for (const Figures& f : window)
      if (f.counts) sum.add(f.divergence, f.same_top, f.nats, f.recorded_nats);
  };
  visit.progress = progress;
  each_row(source_of(loaded, options), text, options, &header, visit);
  return sum.finish();
}

void DivergenceSum::add(double divergence, bool same_top, double nats, double other_nats) {
  all_.push_back(divergence);
  same_ += same_top ? 1 : 0;
  const double change = std::exp(-nats) - std::exp(-other_nats);
  changes_ += change * change;
  nats_ += nats;
  other_nats_ += other_nats;
  squares_ += nats * nats;
  other_squares_ += other_nats * other_nats;
}

Divergence DivergenceSum::finish() const {
  Divergence out;
  if (all_.empty()) return out;
  const double count = all_.size();
  out.tokens = all_.size();
  double squares = 0;
  for (const double x : all_) {
    out.mean += x / count;
    squares += x * x / count;
  }
  const auto error = [&](double mean, double mean_of_squares) {
    return count > 1 ? std::sqrt(std::max(0.0, mean_of_squares - mean * mean) / (count - 1)) : 0;
  };
  out.error = error(out.mean, squares);
  out.nats = nats_ / count;
  out.nats_error = error(out.nats, squares_ / count);
  out.other_nats = other_nats_ / count;
  out.other_nats_error = error(out.other_nats, other_squares_ / count);
  std::vector<double> sorted = all_;
  std::sort(sorted.begin(), sorted.end());
  out.median = quantile(sorted, 0.5);
  out.p90 = quantile(sorted, 0.9);
  out.p99 = quantile(sorted, 0.99);
  out.most = sorted.back();
  out.same_top = same_ / count;
  out.rms_change = std::sqrt(changes_ / count);
  out.ratio = std::exp((nats_ - other_nats_) / count);
  return out;
}

Divergence divergence_between(run::Engine& engine, const arch::Model& base,
                              std::span<const arch::ScaledAdapter> adapters, const arch::Model& merged,
                              const std::vector<text::TokenId>& text, const PerplexityOptions& options,
                              const std::filesystem::path& record,
                              const std::function<void(int64_t, int64_t)>& progress) {
  {
    const LoadedModel loaded(engine, base, adapters);
    record_logits(loaded, text, options, record, progress);
  }
  const LoadedModel loaded(engine, merged);
  return divergence(loaded, text, options, record, progress);
}

}  // namespace lumen::model::infer
