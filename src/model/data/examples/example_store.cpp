#include "model/data/examples/example_store.h"

#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/structured/json.h"

namespace lumen::model::data {
namespace {

constexpr size_t kBlock = size_t{1} << 20;
constexpr uint64_t kMagic = 0x33786174'6e656d75;  // "umentax3"
constexpr const char* kName = "the token cache";
constexpr const char* kKind = "tokens";

// The last bytes: tokens, examples and a JSON text lie in front of it, in this order.
struct Footer {
  uint64_t magic = kMagic;
  uint64_t tokens = 0, examples = 0, text = 0;  // their numbers; bytes of the text
  uint64_t form = 0;
  int64_t largest = -1;
  Hash key, content;  // content: tokens and examples
};
static_assert(sizeof(Footer) == 80 && sizeof(StoredExample) == 32);

}  // namespace

void RunningHash::block() {
  const Hash both[] = {hash_, hash_bytes(buffer_.data(), buffer_.size())};
  hash_ = hash_bytes(both, sizeof both);
  buffer_.clear();
}

void RunningHash::add(const void* data, size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const size_t some = std::min(size, kBlock - buffer_.size());
    buffer_.append(from, some);
    from += some;
    size -= some;
    if (buffer_.size() == kBlock) block();
  }
}

Hash RunningHash::finish() {
  block();
  return hash_;
}

std::shared_ptr<const ExampleStore> ExampleStore::open(SealedFolder& cache, const Hash& key,
                                                       const std::vector<std::string>& files) {
  SealedContents contents = cache.map(kKind, key.hex());
  if (contents.state == SealedContents::State::absent) return nullptr;
  std::string why = contents.why;
  if (contents.is_whole()) {
    if (auto out = of(std::move(contents), key, files)) return out;
    why = "is of another version of Lumen";
  }
  warn(fmt::format("'{}' {}: it is not used, and the data are tokenized again",
                   (cache.path() / kKind / key.hex()).string(), why));
  return nullptr;
}

std::shared_ptr<const ExampleStore> ExampleStore::of(SealedContents contents, const Hash& key,
                                                     const std::vector<std::string>& files) {
  auto out = std::make_shared<ExampleStore>();
  const auto bytes = contents.bytes;
  out->keeper_ = std::move(contents.keeper);
  Footer footer;
  if (bytes.size() < sizeof footer) return nullptr;
  std::memcpy(&footer, bytes.data() + bytes.size() - sizeof footer, sizeof footer);
  const uint64_t size = bytes.size() - sizeof footer;
  if (footer.magic != kMagic || !(footer.key == key) || footer.form > 2 || footer.tokens > size / sizeof(uint32_t) ||
      footer.examples > size / sizeof(StoredExample) || footer.text > size)
    return nullptr;
  // Tokens are padded to an even number of them: examples are aligned.
  const uint64_t token_bytes = (footer.tokens + (footer.tokens & 1)) * sizeof(uint32_t);
  const uint64_t example_bytes = footer.examples * sizeof(StoredExample);
  if (token_bytes + example_bytes + footer.text != size) return nullptr;
  out->form_ = static_cast<RowForm>(footer.form);
  out->tokens_ = {reinterpret_cast<const uint32_t*>(bytes.data()), footer.tokens};
  out->examples_ = {reinterpret_cast<const StoredExample*>(bytes.data() + token_bytes), footer.examples};
  out->largest_ = footer.largest;
  out->hash_ = footer.content;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + token_bytes + example_bytes, footer.text);
  uint64_t first = 0;
  for (const StoredExample& e : out->examples_) {
    if (e.first != first || e.length < 2 || e.length > footer.tokens - first) return nullptr;
    first += e.length;
  }
  if (first != footer.tokens || (out->form_ == RowForm::pairs && footer.examples % 2 != 0)) return nullptr;
  try {
    out->report_ = RowReport::from_json(parse_json(text, kName), kName);
    out->report_.name_files(files);
  } catch (const Error&) {
    return nullptr;
  }
  return out;
}

ExampleWriter::ExampleWriter(SealedFolder* cache, const Hash& key, std::vector<std::string> files)
    : key_(key), files_(std::move(files)), spool_(cache, kKind, key.hex()) {}

void ExampleWriter::add(std::span<const uint32_t> tokens, StoredExample example) {
  LUMEN_CHECK(tokens.size() >= 2 && tokens.size() <= UINT32_MAX);
  example.first = count_;
  example.length = tokens.size();
  example.learned = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) example.learned += tokens[i] >= ExampleStore::kLearned;
    largest_ = std::max(largest_, static_cast<text::TokenId>(tokens[i] & ~ExampleStore::kLearned));
  }
  LUMEN_CHECK(example.learned > 0);
  running_.add(tokens.data(), tokens.size_bytes());
  spool_.write(tokens.data(), tokens.size_bytes());
  count_ += tokens.size();
  examples_.push_back(example);
}

std::shared_ptr<const ExampleStore> ExampleWriter::finish(RowForm form, const RowReport& report) {
  running_.add(examples_.data(), examples_.size() * sizeof(StoredExample));
  const Hash content = running_.finish();
  spool_.pad_to(2 * sizeof(uint32_t));
  spool_.write(examples_.data(), examples_.size() * sizeof(StoredExample));
  const std::string text = json_print(report.to_json(), kName);
  spool_.write(text.data(), text.size());
  Footer footer;
  footer.tokens = count_;
  footer.examples = examples_.size();
  footer.text = text.size();
  footer.form = static_cast<uint64_t>(form);
  footer.largest = largest_;
  footer.key = key_;
  footer.content = content;
  spool_.write(&footer, sizeof footer);
  auto stored = ExampleStore::of(spool_.finish(), key_, files_);
  LUMEN_CHECK(stored, "tokenized examples differ from the data that was written");
  return stored;
}

}  // namespace lumen::model::data
