#include "model/infer/generate/kept_prefixes.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "graph/ir/text.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kBlock = 64;                       // tokens per file, or a page if that is larger
constexpr int64_t kMostBytes = int64_t{16} << 20;    // bytes of a file, unless it holds a single page
constexpr int64_t kLargestPage = int64_t{48} << 20;  // larger pages are not stored: file sizes are limited

}  // namespace

KeptPrefixes::KeptPrefixes(const LoadedModel& loaded, ManySession& session, std::shared_ptr<PrefixFiles> files,
                           std::function<void()> require_whole)
    : loaded_(loaded),
      session_(session),
      files_(std::move(files)),
      identity_(loaded.model()),
      require_whole_(std::move(require_whole)) {
  LUMEN_CHECK(can_keep(session));
  const int64_t page = session.page_size(), bytes = session.page_bytes();
  if (bytes <= kLargestPage) block_ = page * std::max<int64_t>(1, std::min(kBlock / page, kMostBytes / bytes));
}

const std::string& KeptPrefixes::owner(int sequence) {
  if (owners_.empty()) {
    const SessionOptions& options = session_.options();
    const machine::Machine& machine = loaded_.engine().device().machine();
    const std::string same = fmt::format(
        "{}\n{}\n{} {} {} {} {} {} {}\n", identity_.whole(), hash_text(graph::print(session_.graph())).hex(),
        machine.name, machine.features, options.keys ? options.keys->hash.hex() : "f32",
        options.values ? options.values->hash.hex() : "f32", options.exact, options.invariant, session_.page_size());
    for (int64_t set = 0; set < loaded_.sets(); ++set) owners_.push_back(same + loaded_.identity(set));
  }
  return owners_.at(session_.set(sequence));
}

int64_t KeptPrefixes::restore(int sequence, std::span<const text::TokenId> wanted) {
  if (block_ == 0) return 0;
  const int64_t had = session_.length(sequence);
  const int64_t begin = had / block_ * block_;
  const int64_t room = begin + session_.free_pages() * session_.page_size();
  int64_t end = begin;
  while (end + block_ < std::min<int64_t>(std::ssize(wanted), room) &&
         files_->has(owner(sequence), wanted.first(end + block_)))
    end += block_;
  if (end <= had) return 0;
  std::vector<std::string> blocks;
  for (int64_t at = begin; at < end; at += block_) {
    auto block =
        files_->read(owner(sequence), wanted.first(at + block_), block_ / session_.page_size() * session_.page_bytes());
    if (!block) break;
    blocks.push_back(std::move(*block));
  }
  end = begin + std::ssize(blocks) * block_;
  if (end <= had) return 0;
  (void)session_.rewind(sequence, begin);
  for (size_t i = 0; i < blocks.size(); ++i)
    session_.append_pages(sequence, wanted.subspan(begin + int64_t(i) * block_, block_), blocks[i]);
  for (int64_t at = end; at > 0; at -= block_) files_->touch(owner(sequence), wanted.first(at));
  return end - had;
}

void KeptPrefixes::save(int sequence) {
  if (block_ == 0) return;
  try {
    if (require_whole_) require_whole_();
  } catch (const Error&) {
    return;  // the caller that runs the model makes the same check, and reports it
  }
  const std::vector<text::TokenId>& tokens = session_.tokens(sequence);
  const int64_t pages = block_ / session_.page_size(), whole = std::ssize(tokens) / block_ * block_;
  for (int64_t at = 0; at < whole; at += block_) {
    const auto prefix = std::span(tokens).first(at + block_);
    if (!files_->has(owner(sequence), prefix))
      files_->write(owner(sequence), prefix, session_.copy_pages(sequence, at / session_.page_size(), pages));
  }
  for (int64_t at = whole; at > 0; at -= block_) files_->touch(owner(sequence), std::span(tokens).first(at));
}

}  // namespace lumen::model::infer
