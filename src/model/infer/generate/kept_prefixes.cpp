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
  const int64_t most = bytes == 0 ? kBlock : kMostBytes / bytes;
  if (bytes <= kLargestPage) block_ = page * std::max<int64_t>(1, std::min(kBlock / page, most));
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
  if (session_.is_recurrent()) return restore_with_states(sequence, wanted);
  const int64_t had = session_.length(sequence);
  const int64_t begin = had / block_ * block_;
  const int64_t room = begin + session_.free_pages() * session_.page_size();
  int64_t end = begin;
  while (end + block_ < std::min<int64_t>(std::ssize(wanted), room) &&
         files_->has(owner(sequence), wanted.first(end + block_)))
    end += block_;
  if (end <= had) return 0;
  const std::vector<std::string> blocks = read_blocks(sequence, wanted, begin, end);
  end = begin + std::ssize(blocks) * block_;
  if (end <= had) return 0;
  (void)session_.rewind(sequence, begin);
  append(sequence, wanted, begin, blocks);
  return end - had;
}

// The blocks between two places, up to the first that is damaged.
std::vector<std::string> KeptPrefixes::read_blocks(int sequence, std::span<const text::TokenId> wanted, int64_t begin,
                                                   int64_t end) {
  std::vector<std::string> blocks;
  const int64_t bytes = block_ / session_.page_size() * session_.page_bytes();
  for (int64_t at = begin; at < end; at += block_) {
    std::optional<std::string> block =
        bytes == 0 ? std::string() : files_->read(owner(sequence), wanted.first(at + block_), bytes);
    if (!block) break;
    blocks.push_back(std::move(*block));
  }
  return blocks;
}

void KeptPrefixes::append(int sequence, std::span<const text::TokenId> wanted, int64_t begin,
                          const std::vector<std::string>& blocks) {
  for (size_t i = 0; i < blocks.size(); ++i)
    session_.append_pages(sequence, wanted.subspan(begin + int64_t(i) * block_, block_), blocks[i]);
  for (int64_t at = session_.length(sequence); at > 0; at -= block_) files_->touch(owner(sequence), wanted.first(at));
}

int64_t KeptPrefixes::restore_with_states(int sequence, std::span<const text::TokenId> wanted) {
  const int64_t had = session_.length(sequence), room = session_.free_pages() * session_.page_size();
  int64_t end = 0;
  for (int64_t at = block_; at < std::min<int64_t>(std::ssize(wanted), room); at += block_) {
    if (session_.page_bytes() > 0 && !files_->has(owner(sequence), wanted.first(at))) break;
    if (has_states(sequence, wanted.first(at))) end = at;
  }
  if (end <= had) return 0;
  std::optional<std::string> states = read_states(sequence, wanted.first(end));
  if (!states) return 0;
  const std::vector<std::string> blocks = read_blocks(sequence, wanted, 0, end);
  if (std::ssize(blocks) * block_ < end) return 0;
  (void)session_.rewind(sequence, 0);
  append(sequence, wanted, 0, blocks);
  session_.set_states(sequence, std::move(*states));
  for (int64_t part = 0; part < parts_of_states(); ++part)
    files_->touch(owner_of_states(sequence, part), wanted.first(end));
  return end - had;
}

void KeptPrefixes::save(int sequence) {
  if (block_ == 0) return;
  try {
    if (require_whole_) require_whole_();
  } catch (const Error&) {
    return;  // the caller that runs the model makes the same check, and reports it
  }
  const std::span<const text::TokenId> tokens = session_.tokens(sequence);
  if (!session_.is_recurrent()) return save_blocks(sequence, std::ssize(tokens) / block_ * block_);
  int64_t end = 0;
  for (const StateMarks::Mark& mark : session_.marks(sequence)) {
    if (mark.length % block_ != 0) continue;
    end = mark.length;
    const auto prefix = tokens.first(mark.length);
    if (has_states(sequence, prefix)) continue;
    for (int64_t part = 0; part < parts_of_states(); ++part)
      files_->write(owner_of_states(sequence, part), prefix,
                    std::string_view(*mark.bytes).substr(part * kMostBytes, kMostBytes));
  }
  if (session_.page_bytes() > 0) save_blocks(sequence, end);
}

void KeptPrefixes::save_blocks(int sequence, int64_t end) {
  const std::span<const text::TokenId> tokens = session_.tokens(sequence);
  const int64_t pages = block_ / session_.page_size();
  for (int64_t at = 0; at < end; at += block_) {
    const auto prefix = tokens.first(at + block_);
    if (!files_->has(owner(sequence), prefix))
      files_->write(owner(sequence), prefix, session_.copy_pages(sequence, at / session_.page_size(), pages));
  }
  for (int64_t at = end; at > 0; at -= block_) files_->touch(owner(sequence), tokens.first(at));
}

int64_t KeptPrefixes::mark_of(int64_t tokens) const {
  return block_ == 0 ? 0 : (tokens - 1) / block_ * block_;
}

int64_t KeptPrefixes::parts_of_states() {
  return (session_.bytes_of_states() + kMostBytes - 1) / kMostBytes;
}

std::string KeptPrefixes::owner_of_states(int sequence, int64_t part) {
  return fmt::format("{}\nstates {}", owner(sequence), part);
}

bool KeptPrefixes::has_states(int sequence, std::span<const text::TokenId> prefix) {
  for (int64_t part = 0; part < parts_of_states(); ++part)
    if (!files_->has(owner_of_states(sequence, part), prefix)) return false;
  return true;
}

std::optional<std::string> KeptPrefixes::read_states(int sequence, std::span<const text::TokenId> prefix) {
  std::string states;
  for (int64_t part = 0; part < parts_of_states(); ++part) {
    const int64_t bytes = std::min(kMostBytes, session_.bytes_of_states() - part * kMostBytes);
    const std::optional<std::string> some = files_->read(owner_of_states(sequence, part), prefix, bytes);
    if (!some) return std::nullopt;
    states += *some;
  }
  return states;
}

}  // namespace lumen::model::infer
